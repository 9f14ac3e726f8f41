"""The status of a syphon over time, with a clock of the test's."""

from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_monitor import StatusMonitor
from pairbus.syphon.status_records import LedgerState, ProgressRecord, QueueCounts, SyphonStatus

from .fakes import FakeOperations, FakeTimeRuntime, Scene

IDENTITY = SyphonStatus(
    id="s", host="h", pid=1, primary="contoso", secondary="contoso-dr", checkpoint="c"
)


def test_syphon_without_work_for_an_hour_is_not_stalled_when_work_arrives(tmp_path):
    runtime = FakeTimeRuntime()
    state = StateDirectory(tmp_path).create()
    monitor = StatusMonitor(runtime, state, IDENTITY, lambda: ())

    def word() -> str:
        return monitor.status(is_active=True, is_stopped=False).state

    state.write_progress(ProgressRecord(is_started=True))
    assert word() == "running"
    runtime.now += 3600
    assert word() == "running"
    # When messages arrive, the syphon has its time to settle the first …
    monitor.counted((QueueCounts("q", 5, 0),))
    assert word() == "running"
    runtime.now += 29
    assert word() == "running"
    # … and then it stands still.
    runtime.now += 2
    assert word() == "stalled"


def test_status_counts_the_rows_that_driver_and_coordinator_could_not_write_to_the_ledger(tmp_path):
    operations, own = FakeOperations(), [LedgerState()]
    scene = Scene(tmp_path, operations=operations)
    monitor = StatusMonitor(
        FakeTimeRuntime(), scene.state, IDENTITY, lambda: (), ledger=lambda: own[0]
    )

    def shown():
        scene.tick()
        status = monitor.status(is_active=True, is_stopped=False).to_json()
        return status["ledger_dropped_rows"], status["ledger_problem"]

    assert shown() == (0, None)
    own[0] = LedgerState(2, "a write has not returned for 9 s")
    assert shown() == (2, "a write has not returned for 9 s")
    operations.health = LedgerState(3, "disk full")
    assert shown() == (5, "disk full")


def test_what_is_left_between_two_counts_follows_from_what_was_settled(tmp_path):
    state = StateDirectory(tmp_path).create()
    monitor = StatusMonitor(FakeTimeRuntime(), state, IDENTITY, lambda: ())

    def left(settled):
        state.write_progress(ProgressRecord(forwarded=settled))
        return monitor.status(is_active=True, is_stopped=False).remaining

    def counted(messages, settled, *, is_moving):
        state.write_progress(ProgressRecord(forwarded=settled))
        monitor.counted((QueueCounts("q", messages),), is_moving=is_moving)
        return left(70)

    assert left(0) is None
    assert counted(100, 20, is_moving=False) == 50
    assert [left(20), left(70), left(130)] == [100, 50, 0]
    # The queues know of 30 more that were settled: the total stays.
    assert counted(20, 70, is_moving=True) == 50
    assert counted(20, 70, is_moving=False) == 20
    assert counted(60, 70, is_moving=True) == 60  # new ones came
    assert counted(0, 70, is_moving=True) == 0


def test_no_more_messages_are_in_flight_than_remain(tmp_path):
    state = StateDirectory(tmp_path).create()
    monitor = StatusMonitor(FakeTimeRuntime(), state, IDENTITY, lambda: ())
    # After a crash a micro-batch may read all queues to their end, up to 20,000 messages each.
    state.write_progress(ProgressRecord(is_started=True, in_flight=20_000))
    monitor.counted((QueueCounts("q", 7, 0),))
    assert monitor.status(is_active=True, is_stopped=False).in_flight == 7


def test_the_status_says_when_the_syphon_started(tmp_path):
    runtime = FakeTimeRuntime()
    state = StateDirectory(tmp_path).create()
    monitor = StatusMonitor(runtime, state, IDENTITY, lambda: ())
    runtime.now += 3600
    status = monitor.status(is_active=True, is_stopped=False)
    assert status.updated_at > status.started_at > ""
