"""The order when a reader dies: reader, journal and coordinator on a real broker.

No Spark runs here. The reader that dies is a process of its own, which kills itself where it hurts;
the broker's time is moved on by hand.
"""

import signal
import subprocess
import sys

import pytest

from pairbus import broker
from pairbus.amqp.message import Message
from pairbus.client import BulkConnection
from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.coordinator import Coordinator
from pairbus.syphon._sync.reader import BacklogReader
from pairbus.syphon._sync.receiving import QueueReceiver
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.journal import Journal, PageWriter
from pairbus.syphon.limits import Grant
from pairbus.syphon.planner import Planner
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from pairbus.testing import FakeClock
from tests.syphon.conftest import PREFIX, backlog_message, make_queues
from tests.syphon.fakes import FakeBell, FakeOperations

pytestmark = pytest.mark.slow
QUEUES = [f"{PREFIX}/0", f"{PREFIX}/1"]
EACH = 30
BATCH = 10  # messages that a reader asks for, and notes, at once


def die(connection_string, folder, where):
    """Be a reader of the first queue that kills itself: run in a process of its own."""
    times = {"received": 0, "recorded": 0}

    def lethal(name, method):
        def call(*arguments, **named):
            result = method(*arguments, **named)
            times[name] += 1
            if times[name] == 2 and where == name:
                signal.raise_signal(signal.SIGKILL)
            return result

        return call

    def request(page):
        requested(page)
        if where == "requesting":
            signal.raise_signal(signal.SIGKILL)
        return True

    requested, PageWriter.request = PageWriter.request, request
    QueueReceiver.receive = lethal("received", QueueReceiver.receive)
    PageWriter.record = lethal("recorded", PageWriter.record)
    for _ in reader(connection_string, folder).read(1, grants(QUEUES[:1])):
        pass


def connections(connection_string, role):
    return NamespaceConnections(ConnectionPool(ThreadRuntime()), Target(connection_string), role)


def reader(connection_string, folder):
    link = connections(connection_string, "reader")
    runtime = ThreadRuntime()
    return BacklogReader(
        runtime, QueueReceiver(link, is_ordered=True), BacklogQueues(runtime, link),
        namespace="contoso-dr", state=StateDirectory(folder), journal=Journal(folder),
        batch_size=BATCH,
    )  # fmt: skip


def grants(queues):
    return [Grant(queue, EACH, 1 << 20) for queue in queues]


class BrokerTime(ThreadRuntime):
    """Threads as in production, and the broker's clock."""

    def __init__(self, clock):
        self.time = clock


class Syphon:
    """A full backlog, and what reads it."""

    def __init__(self, namespace, folder, clock):
        self.namespace, self.folder, self.clock = namespace, folder, clock
        link = connections(namespace.connection_string, "coordinator")
        self.backlog = BacklogQueues(BrokerTime(clock), link)
        self.bell = FakeBell()
        self.coordinator = self.new_coordinator()
        with BulkConnection(namespace.connection_string) as lean:
            for queue in QUEUES:
                lean.sender(queue).send_batch([backlog_message("orders", n) for n in range(EACH)])

    def new_coordinator(self):
        return Coordinator(
            BrokerTime(self.clock), StateDirectory(self.folder), self.backlog, self.bell,
            FakeOperations(), Planner(QUEUES, per_queue=EACH, ready=QUEUES), HeldMessages(),
        )  # fmt: skip

    def reader_dies(self, where):
        code = f"import {__name__} as test; test.die(*__import__('sys').argv[1:])"
        arguments = [self.namespace.connection_string, str(self.folder), where]
        died = subprocess.run([sys.executable, "-c", code, *arguments], check=False)
        assert died.returncode == -signal.SIGKILL

    def read(self, epoch, queues):
        """What a task gets, as numbers by queue; all of it is settled."""
        found = {queue: [] for queue in queues}
        for batch in reader(self.namespace.connection_string, self.folder).read(
            epoch, grants(queues)
        ):
            for (token, _), opened in zip(batch.messages, batch.opened, strict=True):
                number = Message.parse(opened.message).application_properties["n"]
                found[batch.queue].append(number)
                self.backlog.settle(batch.queue, [token], "completed")
        return found

    def planned(self, epoch):
        self.coordinator.tick()
        return {grant.queue for grant in self.coordinator.plan(epoch)}

    @property
    def uncertain(self):
        return list(StateDirectory(self.folder).progress().uncertain)


@pytest.fixture
def syphon(tmp_path):
    clock = FakeClock()
    with broker.run("contoso-dr", clock=clock, idle_link_timeout=0) as namespace:
        make_queues(namespace, 2)
        yield Syphon(namespace, tmp_path, clock)


ALL = list(range(EACH))


def test_messages_that_a_killed_reader_had_not_recorded_are_not_overtaken(syphon):
    syphon.reader_dies("received")
    # The retry leaves the queue alone, and reads the other one.
    assert syphon.read(1, QUEUES) == {QUEUES[0]: [], QUEUES[1]: ALL}
    assert syphon.planned(1) == {QUEUES[1]}
    for seconds in (2, 30):
        syphon.clock.advance(seconds)
        assert syphon.planned(2) == {QUEUES[1]}
        assert syphon.uncertain == QUEUES[:1]
    # When the locks have ended, all is there, and in order.
    syphon.clock.advance(35)
    assert syphon.planned(2) == set(QUEUES)
    assert syphon.read(3, QUEUES[:1]) == {QUEUES[0]: ALL}
    assert syphon.planned(3) == set(QUEUES)
    assert syphon.uncertain == []


def test_a_driver_that_comes_back_waits_too(syphon):
    syphon.reader_dies("received")
    syphon.coordinator = syphon.new_coordinator()
    replayed = {grant.queue for grant in syphon.coordinator.grants(1)}
    assert replayed == {QUEUES[0]}
    assert syphon.read(1, QUEUES[:1]) == {QUEUES[0]: []}
    assert syphon.planned(1) == {QUEUES[1]}
    syphon.clock.advance(2)
    assert QUEUES[0] not in syphon.planned(1)
    syphon.clock.advance(65)
    assert QUEUES[0] in syphon.planned(1)
    assert syphon.read(2, QUEUES[:1]) == {QUEUES[0]: ALL}


def test_a_reader_that_died_without_messages_costs_no_wait(syphon):
    syphon.reader_dies("requesting")
    assert syphon.read(1, QUEUES[:1]) == {QUEUES[0]: []}
    assert QUEUES[0] not in syphon.planned(1)
    syphon.clock.advance(2)
    assert QUEUES[0] in syphon.planned(1)
    assert syphon.read(2, QUEUES[:1]) == {QUEUES[0]: ALL}


def test_messages_that_a_killed_reader_had_recorded_come_again_immediately(syphon):
    syphon.reader_dies("recorded")
    assert syphon.read(1, QUEUES[:1]) == {QUEUES[0]: ALL}
    assert QUEUES[0] in syphon.planned(1)


def test_a_reader_whose_link_opens_after_a_later_attempt_has_come_requests_nothing(
    syphon, monkeypatch
):
    real = NamespaceConnections.receiver

    def receiver(links, queue, *mode):
        opened = real(links, queue, *mode)
        Journal(syphon.folder).take_over(1, queue)  # opening the link took that long
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(NamespaceConnections, "receiver", receiver)
        with pytest.raises(RuntimeError, match="another attempt has taken over"):
            syphon.read(1, QUEUES[:1])
    assert syphon.read(2, QUEUES[:1]) == {QUEUES[0]: ALL}


def test_a_reader_whose_connection_breaks_passes_on_what_arrived_and_reads_no_more(
    syphon, monkeypatch
):
    real, calls = QueueReceiver.receive, []

    def receive_half(wire, queue, count, size, before):
        got = real(wire, queue, count, size, before)
        calls.append(queue)
        if len(calls) < 2:
            return got
        wire.broke_off = True  # as if the other half had not arrived
        return got[: BATCH // 2]

    monkeypatch.setattr(QueueReceiver, "receive", receive_half)
    assert syphon.read(1, QUEUES[:1]) == {QUEUES[0]: ALL[:15]}
    monkeypatch.undo()
    syphon.coordinator.plan(1)
    syphon.bell.ringing = set(QUEUES[:1])
    for _ in range(2):  # suspected, and looked at
        syphon.clock.advance(2)
        assert QUEUES[0] not in syphon.planned(1)
    syphon.clock.advance(66)  # all locks have expired
    assert QUEUES[0] in syphon.planned(1)
    assert syphon.read(2, QUEUES[:1]) == {QUEUES[0]: ALL[15:]}


def test_a_look_finds_unknown_locks_only(syphon):
    queue = QUEUES[0]
    with BulkConnection(syphon.namespace.connection_string) as lean:
        receiver = lean.receiver(queue)
        assert syphon.backlog.inspect(queue, 0, ()).is_clean
        held = receiver.receive_now(3)
        numbers = [one.sequence_number for one in held]
        inspection = syphon.backlog.inspect(queue, 0, ())
        assert not inspection.is_clean
        assert inspection.lock_seconds == pytest.approx(60, abs=5)
        assert syphon.backlog.inspect(queue, 0, numbers).is_clean
        assert not syphon.backlog.inspect(queue, 0, numbers[1:]).is_clean
        assert syphon.backlog.inspect(queue, numbers[-1], ()).is_clean
        receiver.settle(held[:1], "released")  # now this one is in the way
        assert not syphon.backlog.inspect(queue, numbers[-1], ()).is_clean
        rest = receiver.receive_now(EACH)
        inspection = syphon.backlog.inspect(queue, 0, ())
        assert (inspection.is_clean, inspection.size) == (False, None)
        receiver.complete(rest + held[1:])
        assert syphon.backlog.inspect(queue, 0, ()).is_clean
    assert syphon.backlog.inspect("no-such-queue", 0, ()).is_clean


def test_a_look_does_not_trust_a_message_whose_lock_expired_before_the_others(syphon):
    queue = QUEUES[0]
    with BulkConnection(syphon.namespace.connection_string) as lean:
        receiver = lean.receiver(queue)
        older = receiver.receive_now(3)
        syphon.clock.advance(40)
        newer = receiver.receive_now(3)
        syphon.clock.advance(25)  # the locks of the older ones end
        assert not syphon.backlog.inspect(queue, 0, ()).is_clean
        again = receiver.receive_now(3)
        assert [one.sequence_number for one in again] == [one.sequence_number for one in older]
        receiver.complete(again + newer)
        assert syphon.backlog.inspect(queue, 0, ()).is_clean
