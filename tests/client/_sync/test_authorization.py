# generated from tests/client/_async/test_authorization.py by tools/gen_unasync.py; edit that one
"""Tokens are put, renewed and refused."""

import time
from collections import namedtuple

import pytest

from pairbus.client import AuthenticationError, OperationTimeoutError, SasKey
from pairbus.client import BulkConnection
from pairbus.runtime import ThreadRuntime
from tests.client.support import KEY, Peer, message

AccessToken = namedtuple("AccessToken", "token expires_on")


class Shifted(ThreadRuntime):
    """A runtime whose clocks can be put forward."""

    ahead = 0.0
    suspended = 0.0  # seconds that only the wall clock has counted

    def time(self):
        return time.time() + self.ahead + self.suspended

    def monotonic(self):
        return time.monotonic() + self.ahead


class Key(SasKey):
    """A key that counts its signatures, and may fail."""

    def __init__(self, name="n", key="k"):
        super().__init__(name, key, lifetime=100)
        self.count = 0
        self.error = None

    def token(self, audience, now):
        self.count += 1
        if self.error is not None:
            raise self.error
        return super().token(audience, now)


class Credential:
    """A token credential that answers when the test says so; its tokens are signatures."""

    def __init__(self, ns):
        self.ns = ns
        self.go = runtime.event()
        self.go.set()
        self.asked = runtime.event()
        self.scopes = []
        self.error = None

    def get_token(self, *scopes):
        self.scopes.append(scopes)
        self.asked.set()
        self.go.wait(20)
        if self.error is not None:
            raise self.error
        access = self.ns.credential().get_token(*scopes)
        return AccessToken(access.token, runtime.time() + 100)


runtime = Shifted()


@pytest.fixture(autouse=True)
def now():
    Shifted.ahead = Shifted.suspended = 0.0


def connect(ns, credential, **options):
    return BulkConnection(
        host="127.0.0.1", port=ns.port, tls=False, credential=credential, runtime=runtime,
        **{"timeout": 10, "idle_time_out": None, **options},  # its clocks jump
    )  # fmt: skip


def test_wrong_key_is_refused_and_does_not_show(ns):
    wrong = ns.connection_string.replace("SAS_KEY_VALUE", "c2VjcmV0LXNlY3JldA==")
    with BulkConnection(wrong) as client:
        with pytest.raises(AuthenticationError) as caught:
            client.sender("small")
        assert caught.value.status_code == 401
        shown = f"{caught.value!r} {caught.value} {client!r}"
        assert "c2VjcmV0" not in shown
        assert "SharedAccessSignature" not in shown


def test_tokens_are_renewed_before_they_expire(ns, queue):
    key = Key("RootManageSharedAccessKey", "SAS_KEY_VALUE")
    with connect(ns, key) as client:
        receiver = client.receiver(queue)
        Shifted.ahead = 85
        receiver.wait(0.01)
        assert key.count == 1
        Shifted.ahead = 95
        while key.count < 2:
            receiver.wait(0.01)
        assert key.count == 2
        assert client.is_usable


def test_token_that_expired_while_the_machine_was_suspended_is_not_used(ns, queue):
    key = Key("RootManageSharedAccessKey", "SAS_KEY_VALUE")
    with connect(ns, key) as client:
        client.receiver(queue)
        Shifted.suspended = 50
        client.sender(queue)
        assert key.count == 1
        Shifted.suspended = 101
        client.sender(queue)
        assert key.count == 2


def test_token_credentials_are_asked_for_the_service_scope(ns, queue):
    credential = Credential(ns)
    with connect(ns, credential) as client:
        client.sender(queue)
    assert credential.scopes == [("https://servicebus.azure.net/.default",)]


def test_rights_can_be_checked_without_a_link(ns):
    with connect(ns, KEY) as client:
        client.authorize("$management", client.deadline())
    with connect(ns, SasKey("RootManageSharedAccessKey", "wrong")) as client:
        with pytest.raises(AuthenticationError):
            client.authorize("$management", client.deadline())


def test_error_of_a_credential_reaches_the_one_who_opens_a_link(ns, queue):
    credential = Credential(ns)
    credential.error = LookupError("no identity")
    with connect(ns, credential) as client:
        with pytest.raises(LookupError, match="no identity"):
            client.sender(queue)
        credential.error = None
        assert not (client.sender(queue)).is_detached


def test_slow_credential_does_not_stall_the_others(ns, queue):
    credential = Credential(ns)
    opened = []
    with connect(ns, credential) as client:
        sender, receiver = client.sender(queue), client.receiver(queue)
        credential.go.clear()
        credential.asked.clear()

        def open_another():
            opened.append(client.sender("small"))

        task = runtime.spawn(open_another, name="opener")
        assert credential.asked.wait(60)
        assert (sender.send_batch([message(1)], timeout=5))[0].is_accepted
        received = receiver.receive_now(1, timeout=5)
        assert receiver.settle(received, timeout=5) == [None]
        assert not opened
        credential.go.set()
        assert task.join(60)
        assert opened


def test_slow_renewal_does_not_stall_the_others(ns, queue):
    credential = Credential(ns)
    with connect(ns, credential) as client:
        sender = client.sender(queue)
        credential.go.clear()
        credential.asked.clear()
        Shifted.ahead = 95
        assert (sender.send_batch([message(1)], timeout=5))[0].is_accepted
        assert credential.asked.wait(60)
        assert (sender.send_batch([message(2)], timeout=5))[0].is_accepted
        credential.go.set()
        assert (sender.send_batch([message(3)], timeout=5))[0].is_accepted
    assert len(credential.scopes) == 2


def test_credential_that_never_answers_is_timed_out_and_asked_again(ns, queue):
    credential = Credential(ns)
    credential.go.clear()
    with connect(ns, credential) as client:
        client.connect()  # not part of the short time-outs
        for calls in (1, 2):
            for _ in range(20):  # on a busy machine a time-out may end before the first call
                with pytest.raises(OperationTimeoutError, match="credential"):
                    client.sender(queue, timeout=0.2)
                if len(credential.scopes) >= calls:
                    break
        assert len(credential.scopes) == 2
        credential.go.set()
        assert not (client.sender(queue)).is_detached


def test_refused_token_leaves_the_connection_usable():
    with Peer() as peer, BulkConnection(**peer.address) as client:
        peer.status = 404
        with pytest.raises(AuthenticationError) as caught:
            client.sender("q")
        assert caught.value.status_code == 404
        peer.status = 202
        assert not (client.sender("q")).is_detached


def test_failing_key_is_asked_again_later_while_the_old_token_holds():
    key = Key()
    with Peer() as peer, connect(peer, key) as client:
        receiver = client.receiver("q")
        key.error = RuntimeError("not now")
        Shifted.ahead = 95
        while key.count < 2:
            with pytest.raises(OperationTimeoutError):
                receiver.receive_now(1, timeout=0.02)
        with pytest.raises(OperationTimeoutError):
            receiver.receive_now(1, timeout=0.02)
        assert key.count == 2
        key.error = None
        Shifted.ahead = 130
        while key.count < 3:
            with pytest.raises(OperationTimeoutError):
                receiver.receive_now(1, timeout=0.02)
        assert key.count == 3


def test_token_that_has_expired_by_our_clock_alone_is_not_put_again_and_again():
    key = Key()
    key.lifetime = -600.0
    with Peer() as peer, connect(peer, key) as client:
        receiver = client.receiver("q")
        with pytest.raises(OperationTimeoutError):
            receiver.receive_now(1, timeout=0.1)
        assert key.count == 1


def test_renewal_goes_over_a_new_link_if_the_service_detached_the_old_one():
    key = Key()
    with Peer() as peer, connect(peer, key) as client:
        receiver = client.receiver("q")
        peer.detach("$cbs", "amqp:link:detach-forced")
        for ahead, count in ((95, 2), (180, 3)):
            Shifted.ahead = ahead
            while key.count < count:  # the answer to the renewal before may come late
                with pytest.raises(OperationTimeoutError):
                    receiver.receive_now(1, timeout=0.1)
            assert key.count == count
        assert len(peer.links_to("$cbs")) == 4  # a pair, and another


def test_renewal_that_was_refused_is_tried_again_by_the_next_link():
    with Peer() as peer, connect(peer, Key()) as client:
        receiver = client.receiver("q")
        peer.status = 401
        Shifted.ahead = 95
        with pytest.raises(OperationTimeoutError):
            receiver.receive_now(1, timeout=0.1)
        with pytest.raises(AuthenticationError):
            client.sender("q")
        peer.status = 202
        assert not (client.sender("q")).is_detached
