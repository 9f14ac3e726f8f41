"""Reader and sink without Spark: real brokers, real receives and sends, one task at a time."""

import time

import pyarrow as pa
import pytest

from pairbus.spark.options import Target, parse
from pairbus.spark.reader import ReceivePartition, receive
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.deliverer import Deliverer
from pairbus.syphon.limits import Grant
from pairbus.syphon.wire import Sends, Settles
from tests.spark.syphon.conftest import PREFIX, backlog_message

pytestmark = pytest.mark.slow
QUEUE = f"{PREFIX}/0"


class Task:
    """What one Spark task would do: read a queue, restore, deliver."""

    def __init__(self, pair, state):
        self.pair = pair
        self.state = StateDir(state).create()
        self.reports, self.receipts = [], []

    def read(self, epoch=1, count=5000, **changes):
        options = parse(
            {
                "connectionString": self.pair.secondary.connection_string,
                "queue": QUEUE, "mode": "peekLock", "aliases": "true", "arrowBatchSize": "100",
                "columns": "entity,sequenceNumber,enqueuedTime,lockToken,lockedUntil,receivedTime,"
                "size,messageId,message",
                "stateLocation": str(self.state.path), **changes,
            },
            "read",
        )  # fmt: skip
        return receive(options, ReceivePartition(epoch, (Grant(QUEUE, count, 1 << 30),)))

    def deliverer(self, **changes):
        given = {
            "sending": Sends(Target(self.pair.primary.connection_string), 10),
            "settling": Settles(Target(self.pair.secondary.connection_string)),
            "receipts": self.receipts.append,
            "report": self.reports.append,
        }
        return Deliverer(**{**given, **changes})

    def run(self, *, read=None, **changes):
        deliverer = self.deliverer(**changes)
        for batch in read or self.read():
            deliverer.take(restored(batch))
        deliverer.finish()
        return self

    def total(self, name):
        return sum(report.get(name, 0) for report in self.reports)

    def held(self):
        return [row for report in self.reports for row in report.get("held", [])]

    def remaining(self):
        admin = self.pair.secondary.admin_client()
        return admin.get_queue_runtime_properties(QUEUE).active_message_count


def restored(batch):
    """What `restore` does to a row that is well."""
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
    # Nothing is left for the next test: a retry gives back what the journal has, and takes it off.
    settling = Settles(Target(pair.secondary.connection_string))
    for batch in made.read():
        settling.settle(QUEUE, batch.column("lockToken").to_pylist(), "completed")


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
    assert report["read"][QUEUE]["messages"] == 200
    assert report["read"][QUEUE]["more"]
    task.state.change_controls(paused=False)


def test_a_receipt_that_cannot_be_written_keeps_everything_in_the_backlog(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(3)])
    now = [time.time()]

    def full(_table):
        now[0] += 20
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        task.run(receipts=full, clock=lambda: now[0], pause=lambda _s: None)
    assert {"stalled": "ledger: disk full"} in task.reports
    assert task.remaining() == 3
    assert len(pair.take("orders", 3)) == 3


def test_nothing_is_sent_when_no_receipt_could_be_written(pair, task):
    pair.fill([backlog_message("orders", 1)])
    task.run(probe=lambda: "read-only file system")
    assert task.reports[0] == {"stalled": "ledger: read-only file system"}
    assert pair.take("orders", 1, timeout=0.1) == []
    assert task.remaining() == 1


def test_offenders_stand_alone_and_the_others_keep_their_order(pair, task):
    bad = {0, 13, 14, 199}
    pair.fill([backlog_message("picky", n, session=None if n in bad else "s") for n in range(200)])
    task.run()
    assert pair.numbers("picky", 196, session_id="s") == [n for n in range(200) if n not in bad]
    letters = pair.dead_letters(0, 4)
    assert {n for _, _, n in letters} == bad
    assert {reason for reason, _, _ in letters} == {"Rejected"}
    assert [report["dead_lettered"] for report in task.reports] == [{"Rejected": 4}]
    events = [row["event"] for table in task.receipts for row in table.to_pylist()]
    assert sorted(set(events)) == ["dead_lettered", "forwarded"]


def test_a_destination_that_fails_alone_is_held_and_the_others_go_on(pair, task):
    pair.fill([backlog_message("orders" if n % 2 else "other", n) for n in range(300)])
    with pair.primary.faults.reject("com.microsoft:entity-disabled", entity="orders"):
        task.run()
    assert pair.numbers("other", 150) == list(range(0, 300, 2))
    assert [row[2] for row in task.held()] == sorted(row[2] for row in task.held())
    assert {row[3] for row in task.held()} == {"orders"}
    assert len(task.held()) == 150
    assert task.reports[-1]["failed"] == {"orders": "com.microsoft:entity-disabled"}


def test_a_blocked_destination_lets_only_its_probe_through(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    batches = list(task.read())
    third = batches[0].column("sequenceNumber")[3].as_py()
    task.run(read=batches, blocked={"orders": (QUEUE, third)})
    assert pair.numbers("orders", 1) == [3]
    assert len(task.held()) == 9


def test_a_busy_primary_holds_everything(pair, task):
    pair.fill([backlog_message("orders" if n % 2 else "other", n) for n in range(100)])
    with pair.primary.faults.reject("com.microsoft:server-busy", entity="orders"):
        task.run()
    assert task.reports[-1]["failed"]["*"] == "com.microsoft:server-busy"
    assert {row[3] for row in task.held()} == {"*"}
    assert len(pair.take("other", 50, timeout=0.5)) + len(task.held()) == 100


def test_a_lost_connection_is_the_primarys_fault(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    with pair.primary.faults.close("amqp:connection:forced", entity="orders"):
        task.run()
    assert task.reports[-1]["failed"]["*"]
    assert len(task.held()) == 10


def test_what_is_locked_too_shortly_is_given_back_and_nothing_overtakes_it(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(250)])
    now = [time.time()]
    deliverer = task.deliverer(clock=lambda: now[0])
    for number, batch in enumerate(task.read()):
        if number == 1:
            now[0] += 45  # of a lock of 60 seconds less than a third is left
        deliverer.take(restored(batch))
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


def test_a_stop_gives_back_what_was_not_sent(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(10)])
    task.run(stopping=lambda: True)
    assert task.remaining() == 10
    again = Task(pair, task.state.path / "again").run()
    assert again.total("forwarded") == 10
    assert pair.numbers("orders", 10) == list(range(10))


def test_a_snapshot_leaves_what_came_later(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(3)])
    edge = int(time.time() * 1000)
    time.sleep(0.02)
    pair.fill([backlog_message("orders", n) for n in range(3, 6)])
    task.run(read=task.read(enqueuedBefore=str(edge)))
    assert pair.numbers("orders", 3) == [0, 1, 2]
    (_, report), *_ = task.state.reports()
    assert report["read"][QUEUE]["done"]
    assert task.remaining() == 3


def test_a_snapshot_of_a_queue_ends_when_it_is_empty(pair, task):
    pair.fill([backlog_message("orders", 1)])
    task.run(read=task.read(enqueuedBefore=str(int(time.time() * 1000) + 60_000)))
    assert len(pair.take("orders", 1)) == 1
    (_, report), *_ = task.state.reports()
    assert report["read"][QUEUE]["done"]


def test_without_settlement_a_refusal_is_an_error(pair, task):
    batch = pa.record_batch({"message": pa.array([backlog_message(None, 1)], pa.binary())})
    deliverer = task.deliverer(settling=None, receipts=None, destination="no-such-queue")
    with pytest.raises(RuntimeError, match="no-such-queue: amqp:not-found"):
        deliverer.take(batch)


def test_operations_are_counted_by_namespace_and_stage(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(5)])
    task.run(names=("contoso", "contoso-dr"))
    rows = {tuple(row[:4]): row[4:] for report in task.reports for row in report["operations"]}
    assert rows["contoso", "send_primary", "orders", "send"][1] == 5
    assert rows["contoso-dr", "settle", QUEUE, "completed"][1] == 5
    assert len(pair.take("orders", 5)) == 5


def test_verdicts_complete_and_abandon_need_no_destination(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(2)])
    deliverer = task.deliverer()
    for batch in task.read():
        rows = restored(batch)
        verdicts = pa.array(["complete", "abandon"])
        rows = rows.set_column(rows.schema.get_field_index("verdict"), "verdict", verdicts)
        deliverer.take(rows)
    deliverer.finish()
    assert task.remaining() == 1
    assert pair.take("orders", 1, timeout=0.1) == []
    # What is gone without having been sent has left a trace.
    (receipt,) = pa.concat_tables(task.receipts).to_pylist()
    assert (receipt["event"], receipt["reason"]) == ("completed", "CompletedByTransform")
    assert (receipt["destination"], receipt["message_id"][:4]) == ("orders", "m-0-")


def test_the_books_know_a_rerouted_message_by_where_its_sender_meant_it_to_go(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(2)])
    deliverer = task.deliverer()
    for batch in task.read():
        rows = restored(batch)
        rows = rows.append_column("originalDestination", rows.column("destination"))
        place = rows.schema.get_field_index("destination")
        rows = rows.set_column(place, "destination", pa.array(["other", "orders"]))
        deliverer.take(rows)
    deliverer.finish()
    assert pair.numbers("other", 1) == [0]
    assert pair.numbers("orders", 1) == [1]
    receipts = pa.concat_tables(task.receipts).sort_by("sequence_number").to_pylist()
    told = [(row["event"], row["destination"], row["reason"]) for row in receipts]
    assert told == [("forwarded", "orders", "to other"), ("forwarded", "orders", None)]
