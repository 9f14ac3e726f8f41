"""The order when a reader dies: its source, its journal and the keeper on a real broker.

No Spark runs here. The reader that dies is a process of its own, which kills itself where it hurts;
the broker's time is moved on by hand.
"""

import signal
import subprocess
import sys

import pytest

from pairbus import broker
from pairbus.amqp.message import Message
from pairbus.client.connection import LeanConnection
from pairbus.spark.options import Target, parse
from pairbus.spark.reader import ReceivePartition, receive
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.coordinator import Keeper
from pairbus.syphon.journal import Page
from pairbus.syphon.limits import Grant
from pairbus.syphon.wire import BacklogSide, Receiving
from pairbus.testing import FakeClock
from tests.spark.syphon.conftest import PREFIX, backlog_message, make_queues
from tests.spark.syphon.test_keeper import Bell

pytestmark = pytest.mark.slow
QUEUES = [f"{PREFIX}/0", f"{PREFIX}/1"]
EACH = 30
BATCH = 10  # messages that a reader asks for, and notes, at once


def die(connection_string, folder, where):
    """Be a reader of the first queue that kills itself: run in a process of its own."""
    times = {"received": 0, "noted": 0}

    def lethal(name, method):
        def call(*arguments, **named):
            result = method(*arguments, **named)
            times[name] += 1
            if times[name] == 2 and where == name:
                signal.raise_signal(signal.SIGKILL)
            return result

        return call

    def ask(page):
        asked(page)
        if where == "asking":
            signal.raise_signal(signal.SIGKILL)
        return True

    asked, Page.ask = Page.ask, ask
    Receiving.receive = lethal("received", Receiving.receive)
    Page.note = lethal("noted", Page.note)
    for _ in receive(options(connection_string, folder), partition(1, QUEUES[:1])):
        pass


def options(connection_string, folder):
    given = {
        "connectionString": connection_string, "queue": ",".join(QUEUES), "mode": "peekLock",
        "stateLocation": str(folder), "aliases": "true", "arrowBatchSize": str(BATCH),
    }  # fmt: skip
    return parse(given, "read")


def partition(epoch, queues):
    return ReceivePartition(epoch, tuple(Grant(queue, EACH, 1 << 20) for queue in queues))


class Syphon:
    """A full backlog, and what reads it."""

    def __init__(self, namespace, folder, clock):
        self.namespace, self.folder, self.clock = namespace, folder, clock
        self.options = options(namespace.connection_string, folder)
        self.backlog = BacklogSide(Target(namespace.connection_string), "keeper")
        self.bell = Bell()
        self.keeper = self.new_keeper()
        with LeanConnection(namespace.connection_string) as lean:
            for queue in QUEUES:
                lean.sender(queue).send_batch([backlog_message("orders", n) for n in range(EACH)])

    def new_keeper(self):
        return Keeper(
            QUEUES, StateDir(self.folder), self.backlog, self.bell, clock=self.clock, warm=QUEUES,
            per_queue=EACH,
        )  # fmt: skip

    def reader_dies(self, where):
        code = f"import {__name__} as test; test.die(*__import__('sys').argv[1:])"
        arguments = [self.namespace.connection_string, str(self.folder), where]
        died = subprocess.run([sys.executable, "-c", code, *arguments], check=False)
        assert died.returncode == -signal.SIGKILL

    def read(self, epoch, queues):
        """What a task gets, as numbers by queue; all of it is settled."""
        found = {queue: [] for queue in queues}
        for batch in receive(self.options, partition(epoch, queues)):
            for row in batch.to_pylist():
                message = Message.parse(row["message"])
                found[row["entity"]].append(message.application_properties["n"])
                self.backlog.settle(row["entity"], [row["lockToken"]], "completed")
        return found

    def planned(self, epoch):
        return {grant.queue for grant in self.keeper.plan(epoch)}


@pytest.fixture
def syphon(tmp_path):
    clock = FakeClock()
    with broker.run("contoso-dr", clock=clock) as namespace:
        make_queues(namespace, 2)
        yield Syphon(namespace, tmp_path, clock)


ALL = list(range(EACH))


def test_what_a_killed_reader_was_given_and_had_not_noted_is_not_passed(syphon):
    syphon.reader_dies("received")
    # The retry leaves the queue alone, and reads the other one.
    assert syphon.read(1, QUEUES) == {QUEUES[0]: [], QUEUES[1]: ALL}
    assert syphon.planned(1) == {QUEUES[1]}
    for seconds in (2, 30):
        syphon.clock.advance(seconds)
        assert syphon.planned(2) == {QUEUES[1]}
        assert syphon.keeper.progress["doubtful"] == QUEUES[:1]
    # When the locks have ended, all is there, and in order.
    syphon.clock.advance(35)
    assert syphon.planned(2) == set(QUEUES)
    assert syphon.read(3, QUEUES[:1]) == {QUEUES[0]: ALL}
    assert syphon.planned(3) == set(QUEUES)
    assert syphon.keeper.progress["doubtful"] == []


def test_a_driver_that_comes_back_waits_too(syphon):
    syphon.reader_dies("received")
    syphon.keeper = syphon.new_keeper()
    replayed = {grant.queue for grant in syphon.keeper.grants(1)}
    assert replayed == set(QUEUES)
    assert syphon.read(1, QUEUES) == {QUEUES[0]: [], QUEUES[1]: ALL}
    assert QUEUES[0] not in syphon.planned(1)
    syphon.clock.advance(2)
    assert QUEUES[0] not in syphon.planned(1)
    syphon.clock.advance(65)
    assert QUEUES[0] in syphon.planned(1)
    assert syphon.read(2, QUEUES[:1]) == {QUEUES[0]: ALL}


def test_a_reader_that_was_given_nothing_costs_no_wait(syphon):
    syphon.reader_dies("asking")
    assert syphon.read(1, QUEUES[:1]) == {QUEUES[0]: []}
    assert QUEUES[0] not in syphon.planned(1)
    syphon.clock.advance(2)
    assert QUEUES[0] in syphon.planned(1)
    assert syphon.read(2, QUEUES[:1]) == {QUEUES[0]: ALL}


def test_what_a_killed_reader_had_noted_comes_again_at_once(syphon):
    syphon.reader_dies("noted")
    assert syphon.read(1, QUEUES[:1]) == {QUEUES[0]: ALL}
    assert QUEUES[0] in syphon.planned(1)


def test_a_reader_whose_connection_breaks_off_hands_on_what_came_and_reads_no_more(
    syphon, monkeypatch
):
    real, calls = Receiving.receive, []

    def receive_half(wire, queue, count, size):
        got = real(wire, queue, count, size)
        calls.append(queue)
        if len(calls) < 2:
            return got
        wire.broke_off = True  # as if the other half had not arrived
        return got[: BATCH // 2]

    monkeypatch.setattr(Receiving, "receive", receive_half)
    assert syphon.read(1, QUEUES[:1]) == {QUEUES[0]: ALL[:15]}
    monkeypatch.undo()
    syphon.keeper.plan(1)
    syphon.bell.ringing = set(QUEUES[:1])
    syphon.clock.advance(2)
    assert QUEUES[0] not in syphon.planned(1)
    syphon.clock.advance(60)  # a look finds that they are back
    assert QUEUES[0] in syphon.planned(1)
    assert syphon.read(2, QUEUES[:1]) == {QUEUES[0]: ALL[15:]}


def test_a_look_knows_who_holds_what(syphon):
    queue = QUEUES[0]
    with LeanConnection(syphon.namespace.connection_string) as lean:
        receiver = lean.receiver(queue)
        assert syphon.backlog.look(queue, 0, ()).clean
        held = receiver.receive_now(3)
        numbers = [one.sequence_number for one in held]
        look = syphon.backlog.look(queue, 0, ())
        assert not look.clean
        assert look.lock == pytest.approx(60, abs=5)
        assert syphon.backlog.look(queue, 0, numbers).clean
        assert not syphon.backlog.look(queue, 0, numbers[1:]).clean
        assert syphon.backlog.look(queue, numbers[-1], ()).clean
        receiver.settle(held[:1], "released")  # now this one is in the way
        assert not syphon.backlog.look(queue, numbers[-1], ()).clean
        rest = receiver.receive_now(EACH)
        look = syphon.backlog.look(queue, 0, ())
        assert (look.clean, look.size) == (False, None)
        receiver.complete(rest + held[1:])
        assert syphon.backlog.look(queue, 0, ()).clean
    assert syphon.backlog.look("no-such-queue", 0, ()).clean
