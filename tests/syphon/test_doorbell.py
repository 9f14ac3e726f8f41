"""The doorbell costs one receive per queue and long poll, and rings immediately."""

import time

import pytest
from azure.core.credentials import AzureNamedKeyCredential

from pairbus.client.errors import ClientError
from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.doorbell import Doorbell
from pairbus.syphon.target import Target
from tests.syphon.conftest import PREFIX, backlog_message

pytestmark = pytest.mark.slow
QUEUES = [f"{PREFIX}/0", f"{PREFIX}/1"]


def doorbell(target, long_poll):
    connections = NamespaceConnections(ConnectionPool(ThreadRuntime()), target, "doorbell")
    return Doorbell(ThreadRuntime(), connections, long_poll)


@pytest.fixture
def bell(pair):
    made = doorbell(Target(pair.secondary.connection_string), 0.4)
    yield made
    made.close()


def wait_for(ask, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


def receives(pair):
    counted = pair.secondary.operations
    return sum(
        numbers["calls"]
        for queue, kinds in counted.items()
        if "x-servicebus-transfer" in queue
        for kind, numbers in kinds.items()
        if kind.startswith("receive")
    )


def test_an_idle_queue_costs_one_receive_per_long_poll(pair, bell):
    before = receives(pair)
    bell.listen(QUEUES)
    polls = dict.fromkeys(QUEUES, 0)

    def enough():
        for queue, number in bell.take_results()[0].items():
            polls[queue] += number
        return min(polls.values()) >= 3

    wait_for(enough)
    bell.listen([])
    wait_for(lambda: not bell.armed())
    enough()
    # The doorbell counts for the ledger what the broker counted.
    assert receives(pair) - before == sum(polls.values())


def test_no_poll_begins_between_freeze_and_listen(pair):
    bell = doorbell(Target(pair.secondary.connection_string), 3.0)
    try:
        bell.listen(QUEUES)
        wait_for(lambda: bell.armed() == set(QUEUES))

        under_way = bell.freeze()
        assert under_way == set(QUEUES)
        wait_for(lambda: not bell.armed())
        bell.take_results()
        time.sleep(0.5)  # otherwise the next polls would begin at once
        assert bell.take_results()[0] == {}

        bell.listen(QUEUES[:1])
        wait_for(lambda: bell.armed() == set(QUEUES[:1]))
    finally:
        bell.close()


def test_a_doorbell_that_is_closed_during_a_poll_logs_no_failure(pair, caplog):
    bell = doorbell(Target(pair.secondary.connection_string), 30.0)
    begun = set()
    bell.listen(QUEUES)
    wait_for(lambda: begun.update(bell.take_results()[0]) or begun == set(QUEUES))
    bell.close()
    wait_for(lambda: not bell.armed())
    assert [record.getMessage() for record in caplog.records] == []


def test_a_poll_that_would_begin_after_the_close_is_not_made():
    class Connections:
        """The doorbell is closed when a poll has decided to begin."""

        arrived_bytes = waits = drops = 0

        def receiver(self, queue):
            bell.close()
            return self

        def wait(self, seconds):
            self.waits += 1
            return False

        def drop(self):
            self.drops += 1

    connections = Connections()
    bell = Doorbell(ThreadRuntime(), connections, 0.4)
    bell.listen(QUEUES[:1])
    wait_for(lambda: connections.drops and not bell.armed())
    assert connections.waits == 0
    assert connections.drops == 2  # the connection that was opened after the first one


def test_ten_idle_queues_cost_forty_receives_an_hour(pair):
    poll = 0.9  # for 900 seconds: an hour takes 3.6 seconds
    queues = [f"{PREFIX}/{number}" for number in range(10)]
    for queue in queues[2:]:
        pair.secondary.create_queue(queue)
    before, started = receives(pair), time.monotonic()
    bell = doorbell(Target(pair.secondary.connection_string), poll)
    try:
        bell.listen(queues)
        counted = dict.fromkeys(queues, 0)

        def an_hour():
            for queue, number in bell.take_results()[0].items():
                counted[queue] += number
            return min(counted.values()) >= 5  # four have ended, and the next has begun

        wait_for(an_hour, timeout=60)
        received = receives(pair) - before
        hours = (time.monotonic() - started) / (4 * poll)
        assert 40 <= received <= 40 * hours + 10
        bell.listen([])
        wait_for(lambda: not bell.armed())
    finally:
        bell.close()


def test_the_first_message_rings_and_stays_in_the_queue(pair, bell):
    bell.listen(QUEUES)
    wait_for(lambda: bell.armed() == set(QUEUES))
    pair.fill([backlog_message("orders", 1)], index=1)
    assert wait_for(bell.rung) == {QUEUES[1]}
    assert QUEUES[1] not in bell.armed()
    connection = pair.connect(pair.secondary)
    receiver = connection.receiver(QUEUES[1])
    (one,) = receiver.receive(1, max_wait=5)
    assert one.delivery_count == 0
    receiver.complete([one])
    receiver.close()


refusals: list[Exception] = []


def moody_credential():
    """A credential that fails at first, as one whose own service is unavailable."""
    if refusals:
        raise refusals.pop()
    return AzureNamedKeyCredential("RootManageSharedAccessKey", "SAS_KEY_VALUE")


def test_a_credential_that_fails_is_reported_and_called_again(pair):
    refusals[:] = [RuntimeError("with a secret in it")]
    authority = str(pair.secondary.certificate)
    target = Target(
        host=f"127.0.0.1:{pair.secondary.port}",
        credential=f"{__name__}:moody_credential",
        ca_file=authority,
    )
    bell = doorbell(target, 30)
    try:
        bell.listen(QUEUES[:1])
        assert wait_for(lambda: bell.problem) == (
            "secondary: pairbus:credential-failed: the credential failed: RuntimeError"
        )
        pair.fill([backlog_message("orders", 1)])
        assert wait_for(bell.rung) == {QUEUES[0]}
        assert bell.problem is None
    finally:
        bell.close()


def test_the_problem_ends_as_soon_as_a_queue_can_be_polled_again(pair):
    bell = doorbell(Target(pair.secondary.connection_string), 600)
    try:
        bell.listen(QUEUES)
        wait_for(lambda: pair.secondary.connections)
        pair.secondary.kill()
        wait_for(lambda: bell.problem)
        pair.secondary.start()
        wait_for(lambda: bell.problem is None)
    finally:
        bell.close()


class FailingConnections:
    """Connections whose receives fail while they wait, as with a credential that raises."""

    def __init__(self, error):
        self._error = error

    def receiver(self, queue):
        return self

    def wait(self, seconds):
        raise self._error

    def forget_receiver(self, queue):
        pass

    def drop(self):
        pass


@pytest.mark.parametrize("error", [ClientError("amqp:internal-error", "x"), RuntimeError("secret")])
def test_a_poll_that_fails_after_it_asked_for_a_message_is_reported_as_broken(error):
    bell = Doorbell(ThreadRuntime(), FailingConnections(error), 0.4)
    try:
        bell.listen(QUEUES[:1])
        assert wait_for(lambda: bell.take_results()[2]) == set(QUEUES[:1])
        assert "secret" not in wait_for(lambda: bell.problem)
    finally:
        bell.close()
