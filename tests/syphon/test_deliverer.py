"""Reader and deliverer without Spark: real brokers, one task at a time."""

import time

import pyarrow as pa
import pytest

from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.deliverer import Deliverer
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon._sync.reader import BacklogReader
from pairbus.syphon._sync.receiving import QueueReceiver
from pairbus.syphon.columns import select
from pairbus.syphon.delivery_settings import DeliverySettings
from pairbus.syphon.journal import Journal
from pairbus.syphon.limits import Grant
from pairbus.syphon.rates import AdaptiveRate
from pairbus.syphon.records import BlockedRecord, TaskReport
from pairbus.syphon.rows import RowMaker
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from tests.syphon.conftest import PREFIX, backlog_message

pytestmark = pytest.mark.slow
QUEUE = f"{PREFIX}/0"


COLUMNS = (
    "entity", "sequenceNumber", "enqueuedTime", "lockToken", "lockedUntil", "receivedTime",
    "size", "messageId", "message",
)  # fmt: skip


class Clock(ThreadRuntime):
    """A clock that a test moves on; it does not sleep."""

    def __init__(self):
        self.ahead = 0.0

    def time(self):
        return ThreadRuntime.time() + self.ahead

    def sleep(self, seconds):
        pass


class Task:
    """What one Spark task does: read a queue, restore, deliver."""

    def __init__(self, pair, state):
        self.pair = pair
        self.runtime, self.pool = Clock(), ConnectionPool(ThreadRuntime())
        self.state = StateDirectory(state).create()
        self.reports, self.receipts = [], []
        self.backlog = BacklogQueues(self.runtime, self.connections(pair.secondary, "settler"))

    def connections(self, namespace, role):
        return NamespaceConnections(self.pool, Target(namespace.connection_string), role)

    def read(self, epoch=1, count=5000, numbers=(), **changes):
        link = self.connections(self.pair.secondary, "reader")
        reader = BacklogReader(
            self.runtime, QueueReceiver(link, is_ordered=True), BacklogQueues(self.runtime, link),
            namespace="contoso-dr", state=self.state, journal=Journal(self.state.path),
            batch_size=100, **changes,
        )  # fmt: skip
        maker = RowMaker(select(COLUMNS, aliases=True))
        for batch in reader.read(epoch, [Grant(QUEUE, count, 1 << 30, numbers)]):
            yield maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)

    def deliverer(self, **changes):
        names = ("probe", "is_stopping", "answering")
        own = {name: changes.pop(name) for name in names if name in changes}
        given = {"settling": self.backlog, "receipts": self.receipts.append}
        given |= {name: changes.pop(name) for name in given.keys() & changes.keys()}
        return Deliverer(
            self.runtime,
            Destinations(self.connections(self.pair.primary, "writer"), 10),
            given["settling"],
            given["receipts"],
            self.reports.append,
            DeliverySettings(**changes),
            **own,
        )

    def run(self, *, read=None, **changes):
        deliverer = self.deliverer(**changes)
        for batch in read or self.read():
            deliverer.deliver(restored(batch))
        deliverer.finish()
        return self

    def total(self, name):
        return sum(getattr(report, name) for report in self.reports)

    def held(self):
        return [held for report in self.reports for held in report.held]

    def remaining(self):
        admin = self.pair.secondary.admin_client()
        return admin.get_queue_runtime_properties(QUEUE).active_message_count


def restored(batch):
    """What `restore` does to a valid row."""
    names = {
        "aliasPath": "destination", "aliasSessionId": "sessionId",
        "aliasTimeToLive": "timeToLive", "aliasScheduledEnqueueTime": "scheduledEnqueueTime",
    }  # fmt: skip
    renamed = batch.rename_columns([names.get(name, name) for name in batch.schema.names])
    verdict = pa.array(["deliver"] * batch.num_rows)
    return renamed.append_column("verdict", verdict)


@pytest.fixture
def task(pair, tmp_path):
    made = Task(pair, tmp_path)
    yield made
    # Empty the queue for the next test: a retry returns and receives what the journal has.
    for batch in made.read():
        made.backlog.settle(QUEUE, batch.column("lockToken").to_pylist(), "completed")


@pytest.fixture(scope="module", autouse=True)
def destinations(pair):
    for name in ("orders", "other"):
        pair.primary.create_queue(name)
    pair.primary.create_queue("picky", requires_session=True)


def test_receipts_are_durable_before_anything_is_settled(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(250)])
    left = []
    task.run(receipts=lambda table: left.append((table.num_rows, task.remaining())))
    assert left == [(250, 250)]
    assert task.remaining() == 0
    assert task.total("forwarded") == 250
    assert pair.numbers("orders", 250) == list(range(250))


def test_a_pause_ends_a_read_that_is_under_way(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(350)])
    batches = task.read()
    taken = [next(batches).num_rows, next(batches).num_rows]
    task.state.change_controls(paused=True)
    taken += [batch.num_rows for batch in batches]
    assert taken == [100, 100]
    (report,) = [report for _, report in task.state.reports()]
    assert report.read[QUEUE].messages == 200
    assert report.read[QUEUE].has_more
    task.state.change_controls(paused=False)


def test_a_receipt_that_cannot_be_written_keeps_everything_in_the_backlog(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(3)])

    def full(_table):
        task.runtime.ahead += 20
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        task.run(receipts=full)
    assert TaskReport(stalled="ledger: disk full") in task.reports
    assert task.remaining() == 3
    assert len(pair.take("orders", 3)) == 3


def test_nothing_is_sent_when_no_receipt_could_be_written(pair, task):
    pair.fill([backlog_message("orders", 1)])
    task.run(probe=lambda: "read-only file system")
    assert task.reports[0] == TaskReport(stalled="ledger: read-only file system")
    assert pair.count("orders") == 0
    assert task.remaining() == 1


def test_refused_messages_are_dead_lettered_and_the_others_keep_their_order(pair, task):
    bad = {0, 13, 14, 199}
    pair.fill([backlog_message("picky", n, session=None if n in bad else "s") for n in range(200)])
    task.run()
    assert pair.numbers("picky", 196, session_id="s") == [n for n in range(200) if n not in bad]
    letters = pair.dead_letters(0, 4)
    assert {n for _, _, n in letters} == bad
    assert {reason for reason, _, _ in letters} == {"Rejected"}
    assert [report.dead_lettered for report in task.reports] == [{"Rejected": 4}]
    events = [row["event"] for table in task.receipts for row in table.to_pylist()]
    assert sorted(set(events)) == ["dead_lettered", "forwarded"]


def test_a_destination_that_fails_alone_is_held_and_the_others_go_on(pair, task):
    pair.fill([backlog_message("orders" if n % 2 else "other", n) for n in range(300)])
    with pair.primary.faults.reject("com.microsoft:entity-disabled", entity="orders"):
        task.run()
    assert pair.numbers("other", 150) == list(range(0, 300, 2))
    assert [held.sequence for held in task.held()] == sorted(h.sequence for h in task.held())
    assert {held.destination for held in task.held()} == {"orders"}
    assert len(task.held()) == 150
    assert task.reports[-1].failed == {"orders": "com.microsoft:entity-disabled"}


def test_a_blocked_destination_lets_only_its_probe_through(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    batches = list(task.read())
    first = batches[0].column("sequenceNumber")[0].as_py()
    task.run(read=batches, blocked=BlockedRecord({"orders": (QUEUE, first)}))
    assert pair.numbers("orders", 1) == [0]
    assert len(task.held()) == 9


def test_a_probe_does_not_pass_an_older_message_that_came_with_it(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    batches = list(task.read())
    third = batches[0].column("sequenceNumber")[3].as_py()
    task.run(read=batches, blocked=BlockedRecord({"orders": (QUEUE, third)}))
    assert len(task.held()) == 10


def test_a_busy_primary_gets_the_same_batch_again_and_nothing_is_received_twice(pair, task):
    pair.fill([backlog_message("orders" if n % 2 else "other", n) for n in range(100)])
    with pair.primary.faults.throttle(entity="orders", times=3):
        task.run()
    assert task.total("busy") == 3
    assert task.total("forwarded") == 100
    assert task.held() == []
    assert pair.numbers("orders", 50) == list(range(1, 100, 2))
    assert pair.numbers("other", 50) == list(range(0, 100, 2))


def test_at_a_limited_rate_small_batches_go_out_in_order_and_the_task_reports_its_rate(pair, task):
    pair.fill([backlog_message("orders" if n % 2 else "other", n) for n in range(100)])
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        task.runtime.ahead += seconds

    task.runtime.sleep = sleep
    with pair.primary.faults.throttle(entity="orders", nth=3, times=1):
        task.run(blocked=BlockedRecord(sending=AdaptiveRate(600.0, 300.0)))
    assert len(waits) >= 5
    assert 0.25 in waits  # after the server-busy answer
    assert task.total("busy") == 1
    assert pair.numbers("orders", 50) == list(range(1, 100, 2))
    assert pair.numbers("other", 50) == list(range(0, 100, 2))
    last = task.reports[-1]
    assert last.has_ended
    assert last.sending.peak < 400
    assert last.sending.rate < 300  # where it began


def test_messages_that_a_busy_primary_refuses_too_long_are_returned(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        task.runtime.ahead += 12

    task.runtime.sleep = sleep
    with pair.primary.faults.throttle(entity="orders"):
        task.run()
    assert waits == [0.25, 0.5, 1.0, 2.0]  # then less than a third of the lock is left
    assert task.remaining() == 10
    assert task.total("forwarded") == 0


def test_a_lost_connection_concerns_the_whole_primary(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    with pair.primary.faults.close("amqp:connection:forced", entity="orders"):
        task.run()
    assert task.reports[-1].failed["*"]
    assert len(task.held()) == 10


def test_messages_whose_lock_is_too_short_are_returned_and_nothing_overtakes_them(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(250)])
    deliverer = task.deliverer()
    for number, batch in enumerate(task.read()):
        if number == 1:
            task.runtime.ahead += 45  # of a lock of 60 seconds less than a third is left
        deliverer.deliver(restored(batch))
    deliverer.finish()
    assert pair.numbers("orders", 100) == list(range(100))
    assert task.total("forwarded") == 100
    again = Task(pair, task.state.path / "again").run()
    assert again.total("forwarded") == 150
    assert pair.numbers("orders", 150) == list(range(100, 250))


def test_a_retry_gets_the_same_messages_in_the_same_order(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(250)])
    dying = task.read(epoch=7)
    next(dying)
    next(dying)  # the worker dies here, with 200 messages locked
    task.run(read=task.read(epoch=7))
    assert pair.numbers("orders", 250) == list(range(250))


def test_a_stop_returns_messages_that_were_not_sent(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    task.run(is_stopping=lambda: True)
    assert task.remaining() == 10
    again = Task(pair, task.state.path / "again").run()
    assert again.total("forwarded") == 10
    assert pair.numbers("orders", 10) == list(range(10))


def test_a_snapshot_leaves_later_messages(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(3)])
    edge = int(time.time() * 1000)
    time.sleep(0.02)
    pair.fill([backlog_message("orders", n) for n in range(3, 6)])
    task.run(read=task.read(enqueued_before=edge))
    assert pair.numbers("orders", 3) == [0, 1, 2]
    (_, report), *_ = task.state.reports()
    assert report.read[QUEUE].is_finished
    assert task.remaining() == 3


def test_a_snapshot_of_a_queue_ends_when_it_is_empty(pair, task):
    pair.fill([backlog_message("orders", 1)])
    task.run(read=task.read(enqueued_before=int(time.time() * 1000) + 60_000))
    assert len(pair.take("orders", 1)) == 1
    (_, report), *_ = task.state.reports()
    assert report.read[QUEUE].is_finished


def test_without_settlement_a_refusal_is_an_error(pair, task):
    batch = pa.record_batch({"message": pa.array([backlog_message(None, 1)], pa.binary())})
    deliverer = task.deliverer(settling=None, receipts=None, destination="no-such-queue")
    with pytest.raises(RuntimeError, match="no-such-queue: amqp:not-found"):
        deliverer.deliver(batch)


def test_operations_are_counted_by_namespace_and_stage(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(5)])
    task.run(primary="contoso", secondary="contoso-dr")
    counted = {
        (one.namespace, one.stage, one.entity, one.operation): one.messages
        for report in task.reports
        for one in report.operations
    }
    assert counted["contoso", "send_primary", "orders", "send"] == 5
    assert counted["contoso-dr", "settle", QUEUE, "completed"] == 5
    assert len(pair.take("orders", 5)) == 5


class Unanswered:
    """A secondary that settles and does not answer: all locks count as lost."""

    def __init__(self, backlog):
        self.backlog = backlog

    def settle(self, queue, tokens, how, reason="", description=""):
        self.backlog.settle(queue, tokens, how, reason, description)
        return len(tokens)


def test_settlement_that_was_not_answered_is_not_charged(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(5)])
    task.run(secondary="contoso-dr", settling=Unanswered(task.backlog))
    stages = {one.stage for report in task.reports for one in report.operations}
    assert stages == {"send_primary"}
    assert len(pair.take("orders", 5)) == 5


def test_verdicts_complete_and_abandon_need_no_destination(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(2)])
    deliverer = task.deliverer()
    for batch in task.read():
        rows = restored(batch)
        verdicts = pa.array(["complete", "abandon"])
        rows = rows.set_column(rows.schema.get_field_index("verdict"), "verdict", verdicts)
        deliverer.deliver(rows)
    deliverer.finish()
    assert task.remaining() == 1
    assert pair.count("orders") == 0
    # A message that was completed without being sent has a receipt.
    (receipt,) = pa.concat_tables(task.receipts).to_pylist()
    assert (receipt["event"], receipt["reason"]) == ("completed", "CompletedByTransform")
    assert (receipt["destination"], receipt["message_id"][:4]) == ("orders", "m-0-")


def test_the_ledger_knows_a_rerouted_message_by_its_original_destination(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(2)])
    deliverer = task.deliverer()
    for batch in task.read():
        rows = restored(batch)
        rows = rows.append_column("originalDestination", rows.column("destination"))
        place = rows.schema.get_field_index("destination")
        rows = rows.set_column(place, "destination", pa.array(["other", "orders"]))
        deliverer.deliver(rows)
    deliverer.finish()
    assert pair.numbers("other", 1) == [0]
    assert pair.numbers("orders", 1) == [1]
    receipts = pa.concat_tables(task.receipts).sort_by("sequence_number").to_pylist()
    told = [(row["event"], row["destination"], row["reason"]) for row in receipts]
    assert told == [("forwarded", "orders", "to other"), ("forwarded", "orders", None)]


def test_messages_for_a_missing_destination_are_held_until_it_expires(pair, task):
    pair.fill([backlog_message("not-yet", n) for n in range(3)])
    batches = list(task.read())
    task.run(read=batches, waits_for_missing=True)
    assert task.reports[-1].failed == {"not-yet": "amqp:not-found"}
    assert [held.destination for held in task.held()] == ["not-yet"] * 3
    assert task.reports[-1].dead_lettered == {}
    task.run(read=batches, waits_for_missing=True, blocked=BlockedRecord(expired=("not-yet",)))
    assert [reason for reason, _, _ in pair.dead_letters(0, 3)] == ["DestinationNotFound"] * 3
