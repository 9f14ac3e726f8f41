"""The secondary as the coordinator sees it: real brokers, broken connections."""

import socket

import pytest

from pairbus import broker
from pairbus.broker.auth.credentials import BrokerCredential
from pairbus.broker.entities.model import AccessRight, AuthorizationRule
from pairbus.client import BulkConnection
from pairbus.client.errors import (
    AuthenticationError,
    LinkDetachedError,
    OperationTimeoutError,
    RequestFailedError,
)
from pairbus.client.settlement import Mode
from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.backlog import LASTING, BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections, check_access
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon._sync.receiving import QueueReceiver
from pairbus.syphon.refusals import Cause, judge
from pairbus.syphon.target import Target

KEY = (
    "Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE"
)


def backlog_of(connection_string, **options):
    connections = NamespaceConnections(
        ConnectionPool(ThreadRuntime()), Target(connection_string), "test"
    )
    return BacklogQueues(ThreadRuntime(), connections, **options)


@pytest.fixture
def secondary():
    with broker.run("contoso-dr") as namespace:
        namespace.create_queue("full")
        namespace.create_queue("empty")
        with BulkConnection(namespace.connection_string) as connection:
            assert connection.sender("full").send_batch([b"\x00\x53\x75\xa0\x01x"])[0].is_accepted
        yield namespace


def test_a_queue_is_empty_when_it_holds_no_message_or_does_not_exist(secondary):
    backlog = backlog_of(secondary.connection_string)
    assert backlog.is_empty("full") is False
    assert backlog.is_empty("empty") is True
    assert backlog.is_empty("no-such-queue") is True


def test_a_queue_that_does_not_exist_is_read_as_empty_without_a_warning(secondary, caplog):
    connections = NamespaceConnections(
        ConnectionPool(ThreadRuntime()), Target(secondary.connection_string), "reader"
    )
    receiver = QueueReceiver(connections, is_ordered=True)
    assert receiver.receive("no-such-queue", 10, 1000) == []
    assert not receiver.has_failed
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_receive_without_an_answer_is_not_repeated_on_the_same_connection(secondary):
    class HalfOpen(NamespaceConnections):
        """The first connection is half open: it answers no receive, and nothing closes it."""

        is_dead = True

        def receiver(self, entity, mode=Mode.PEEK_LOCK):
            found = super().receiver(entity, mode)
            if self.is_dead:
                found.take_now = self.time_out
            return found

        def time_out(self, count, size):
            raise OperationTimeoutError("receiving")

        def drop(self):
            self.is_dead = False
            super().drop()

    pool = ConnectionPool(ThreadRuntime())
    receiver = QueueReceiver(
        HalfOpen(pool, Target(secondary.connection_string), "reader"), is_ordered=True
    )
    assert receiver.receive("full", 10, 1000) == []
    assert receiver.broke_off
    assert len(receiver.receive("full", 10, 1000)) == 1


@pytest.mark.slow
def test_whether_a_queue_of_an_unreachable_secondary_is_empty_is_unknown():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening: connections are refused
        nobody = (
            f"Endpoint=sb://127.0.0.1:{taken.getsockname()[1]};SharedAccessKeyName=a;"
            "SharedAccessKey=b;UseDevelopmentEmulator=true"
        )
        backlog = backlog_of(nobody, patience=0.2)
        assert backlog.is_empty("full") is None
        assert backlog.renew("full", [bytes(16)]) == {}


def test_a_connection_that_timed_out_is_replaced_even_if_that_took_all_patience(secondary):
    class LostOnce(NamespaceConnections):
        is_lost = True

        def management(self, queue):
            if self.is_lost:
                self.is_lost = False
                raise OperationTimeoutError(f"peek on {queue}")
            return super().management(queue)

    runtime = ThreadRuntime()
    target = Target(secondary.connection_string)
    backlog = BacklogQueues(runtime, LostOnce(ConnectionPool(runtime), target, "test"), patience=0)
    assert backlog.is_empty("full") is False


failures: list[Exception] = []


def fail():
    if failures:
        raise failures.pop()


class Tokens(BrokerCredential):
    def get_token(self, *scopes, **options):
        fail()
        return super().get_token(*scopes, **options)


def failing_factory():
    fail()
    return BrokerCredential(KEY)


def failing_tokens():
    return Tokens(KEY)


@pytest.fixture(params=[failing_factory, failing_tokens], ids=lambda made: made.__name__)
def links(request, secondary):
    target = Target(
        host=f"127.0.0.1:{secondary.port}",
        credential=f"{__name__}:{request.param.__name__}",
        ca_file=str(secondary.certificate),
    )
    links = NamespaceConnections(ConnectionPool(ThreadRuntime()), target, "test")
    yield links
    failures.clear()
    links.drop()


def test_a_credential_that_fails_for_a_moment_does_not_prevent_a_settlement(secondary, links):
    token = locked(secondary)
    failures[:] = [RuntimeError("no token now")] * 3
    assert BacklogQueues(ThreadRuntime(), links).settle("full", [token], "completed") == 0


def test_nothing_is_known_of_a_queue_while_the_credential_fails(links, caplog):
    failures[:] = [RuntimeError("a secret of the credential") for _ in range(50)]
    backlog = BacklogQueues(ThreadRuntime(), links, patience=0)
    assert backlog.is_empty("full") is None
    assert backlog.renew("full", [bytes(16)]) == {}
    assert backlog.fetch("full", [1]).broke_off
    assert backlog.settle("full", [bytes(16)], "completed", patience=0) is None
    receiver = QueueReceiver(links, is_ordered=True)
    assert receiver.receive("full", 10, 1000) == []
    assert receiver.has_failed
    assert receiver.problem == "pairbus:credential-failed: the credential failed: RuntimeError"
    assert "pairbus:credential-failed" in caplog.text
    assert "secret" not in caplog.text


def test_the_whole_primary_waits_while_its_credential_fails(links):
    failures[:] = [RuntimeError("a secret of the credential")] * 2
    destinations = Destinations(links, 5.0)
    for asks_limit in (True, False):
        if asks_limit:
            destinations.limit("full")
        [outcome] = destinations.send([("full", [b"message"])])
        assert judge(outcome.condition).cause is Cause.PRIMARY
        assert outcome.description == "the credential failed: RuntimeError"
    [outcome] = destinations.send([("full", [b"\x00\x53\x75\xa0\x01x"])])
    assert outcome.is_accepted


def test_messages_of_a_queue_that_was_deleted_are_settled_in_vain(secondary):
    token, backlog = locked(secondary), backlog_of(secondary.connection_string)
    secondary.admin_client().delete_queue("full")
    assert backlog.settle("full", [token], "completed") == 1
    assert backlog.abandon("full", [token]) == 0
    assert not backlog.defer("full", [token])


def locked(secondary):
    """The lock token of the message in `full`."""
    with BulkConnection(secondary.connection_string) as connection:
        (received,) = connection.receiver("full").receive_now(10)
        return received.tag


def test_a_lock_whose_renewal_was_refused_for_a_moment_is_not_lost(secondary):
    token, backlog = locked(secondary), backlog_of(secondary.connection_string)
    secondary.faults.throttle(on="management", times=1)
    assert backlog.renew("full", [token]) == {}
    renewed = backlog.renew("full", [token, bytes(16)])
    assert renewed[token] is not None
    assert renewed[bytes(16)] is None


def test_a_settlement_that_was_refused_for_a_moment_is_repeated(secondary):
    token, backlog = locked(secondary), backlog_of(secondary.connection_string)
    secondary.faults.throttle(on="management", times=1)
    assert backlog.abandon("full", [token]) == 1


def test_whether_a_message_was_returned_is_unknown_while_the_secondary_refuses(secondary):
    token = locked(secondary)
    backlog = backlog_of(secondary.connection_string, patience=0)
    secondary.faults.throttle(on="management")
    assert backlog.abandon("full", [token]) is None
    assert backlog.defer("full", [token]) is False


def with_key(secondary, name, key):
    """The connection string of the secondary with another key."""
    text = secondary.connection_string.replace("RootManageSharedAccessKey", name)
    return text.replace("SAS_KEY_VALUE", key)


def test_a_key_that_is_refused_loses_no_lock(secondary):
    token = locked(secondary)
    backlog = backlog_of(with_key(secondary, "nobody", "key"), patience=0)
    assert backlog.renew("full", [token]) == {}
    assert backlog.abandon("full", [token]) is None
    assert backlog_of(secondary.connection_string).abandon("full", [token]) == 1


def test_a_right_that_is_missing_loses_no_lock(secondary):
    rule = AuthorizationRule("sender", (AccessRight.SEND,), "sender-key", "other-key")
    secondary.create_queue("sends-only", authorization_rules=(rule,))
    backlog = backlog_of(with_key(secondary, "sender", "sender-key"), patience=0)
    assert backlog.renew("sends-only", [bytes(16)]) == {}
    assert backlog.abandon("sends-only", [bytes(16)]) is None


def test_the_locks_of_a_queue_that_was_deleted_are_lost(secondary):
    tokens = [bytes(16), bytes(15) + b"1"]
    assert backlog_of(secondary.connection_string).renew("deleted", tokens) == dict.fromkeys(tokens)


def test_a_settlement_is_repeated_if_its_link_was_detached_before_the_answer(secondary):
    class DetachedOnce(NamespaceConnections):
        asked = 0

        def management(self, queue):
            found = super().management(queue)
            self.asked += 1
            if self.asked == 1:
                found.settle_each = lambda groups, *how: [
                    LinkDetachedError("amqp:link:detach-forced", "idle") for _ in groups
                ]
            return found

    runtime, target = ThreadRuntime(), Target(secondary.connection_string)
    backlog = BacklogQueues(runtime, DetachedOnce(ConnectionPool(runtime), target, "test"))
    assert backlog.abandon("full", [locked(secondary)]) == 1


@pytest.mark.parametrize("condition", sorted(LASTING))
def test_a_refusal_that_lasts_is_repeated_once_however_patient_the_syphon_is(secondary, condition):
    asked = []

    class Refused(NamespaceConnections):
        def management(self, queue):
            found = super().management(queue)
            asked.append(queue)
            found.settle_each = lambda groups, *how: [
                RequestFailedError(condition, "refused", 401) for _ in groups
            ]
            return found

    runtime, target = ThreadRuntime(), Target(secondary.connection_string)
    connections = Refused(ConnectionPool(runtime), target, "test")
    assert BacklogQueues(runtime, connections, patience=600).abandon("full", [bytes(16)]) is None
    assert asked == ["full", "full"]


def test_a_settlement_that_was_answered_asks_for_nothing_more(secondary):
    class LostAfterwards(NamespaceConnections):
        asked = 0

        def management(self, queue):
            self.asked += 1
            if self.asked > 1:
                raise OperationTimeoutError(f"settle on {queue}")
            return super().management(queue)

    runtime, target = ThreadRuntime(), Target(secondary.connection_string)
    connections = LostAfterwards(ConnectionPool(runtime), target, "test")
    backlog = BacklogQueues(runtime, connections, patience=0)
    assert backlog.abandon("full", [locked(secondary)]) == 1


def test_access_is_checked_before_anything_starts(secondary):
    text = secondary.connection_string
    assert check_access(ThreadRuntime(), Target(text), "full") is None
    key = text.partition("SharedAccessKey=")[2].partition(";")[0]
    problem = check_access(ThreadRuntime(), Target(text.replace(key, "d3Jvbmc=")), "full")
    assert isinstance(problem, AuthenticationError)
