"""The state in an object store: a real server that speaks S3, on loopback."""

import threading
import time
import uuid
from pathlib import PurePosixPath

import pyarrow.fs as pafs
import pytest

from pairbus.exceptions import SyphonError
from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.reader import BacklogReader
from pairbus.syphon._sync.receiving import QueueReceiver
from pairbus.syphon.limits import Grant
from pairbus.syphon.object_files import ObjectFiles, open_files
from pairbus.syphon.object_journal import ObjectJournal
from pairbus.syphon.object_lease import ObjectLease
from pairbus.syphon.orphaned_locks import OrphanedLocks
from pairbus.syphon.records import Control, HeldRecord, TaskReport
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from tests.conftest import serving
from tests.syphon.conftest import PREFIX, backlog_message
from tests.syphon.fakes import HELD, FakeTimeRuntime

pytestmark = pytest.mark.slow
QUEUE = f"{PREFIX}/0"


@pytest.fixture(scope="module")
def server():
    with serving() as store:
        yield store


@pytest.fixture
def location(server):
    return server.location(f"state-{uuid.uuid4().hex}")


class CountingFiles(ObjectFiles):
    """Counts what is asked of the store."""

    def __init__(self, location):
        filesystem, _ = pafs.FileSystem.from_uri(location)
        super().__init__(filesystem)
        self.writes, self.listings = [], []

    def write(self, path, data):
        self.writes.append(path)
        super().write(path, data)

    def list(self, folder):
        self.listings.append(folder)
        return super().list(folder)

    def tree(self, folder):
        self.listings.append(folder)
        return super().tree(folder)


def test_controls_reports_and_records_are_objects(location):
    state = StateDirectory(location).create()
    assert state.control() == Control()
    state.change_controls(paused=True, max_messages_per_second=5)
    assert StateDirectory(location).control() == Control(True, 5.0)
    state.report(TaskReport(forwarded=1))
    state.report(TaskReport(forwarded=2))
    found = list(StateDirectory(location).reports())
    assert sorted(report.forwarded for _, report in found) == [1, 2]
    for path, _ in found:
        state.remove(path)
    assert not state.has_reports()
    state.write_held(HeldRecord(HELD))
    assert StateDirectory(location).held() == HeldRecord(HELD)
    assert not state.is_stopping
    state.ask_to_stop()
    assert StateDirectory(location).is_stopping
    state.begin_run()
    assert not StateDirectory(location).is_stopping


def test_a_location_that_no_store_has_is_refused_without_its_secret():
    with pytest.raises(SyphonError) as caught:
        StateDirectory("nostore://key:secret@place/state")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", [OSError, FileNotFoundError])
def test_errors_of_a_store_do_not_show_the_query_of_its_url(kind):
    class Store:
        def open_input_stream(self, path):
            raise kind(f"GET https://store.example/{path}?sv=1&sig=c2VjcmV0 failed")

    with pytest.raises(kind, match=r"GET https://store.example/a\?… failed") as caught:
        ObjectFiles(Store()).read(PurePosixPath("a"))
    assert "sig" not in str(caught.value)
    assert caught.value.__suppress_context__


class Machine(FakeTimeRuntime):
    """A machine whose clock does not move by itself."""

    def sleep(self, seconds):
        self.now += seconds


def lease(location, runtime, host, pid=1, files=None, **changes):
    store, path = open_files(location, runtime)
    return ObjectLease(runtime, path, host=host, pid=pid, files=files or store, **changes)


def test_a_second_syphon_is_refused_and_takes_over_when_the_first_is_dead(location):
    runtime = Machine()
    first = lease(location, runtime, "one", 7)
    first.acquire()
    with pytest.raises(SyphonError, match=r"host one, process 7, since 1970"):
        lease(location, runtime, "two").acquire()
    runtime.now += 6
    assert first.renew()
    runtime.now += 61  # it does not renew any more
    second = lease(location, runtime, "two")
    second.acquire()
    assert not first.renew()
    second.release()
    lease(location, runtime, "three").acquire()


def test_on_one_machine_the_process_counts_and_not_the_time(location):
    runtime = Machine()
    lease(location, runtime, "one", 7, started_at=lambda pid: "").acquire()
    with pytest.raises(SyphonError):
        lease(location, runtime, "one", 8, started_at=lambda pid: "").acquire()
    lease(location, runtime, "one", 8, started_at=lambda pid: None).acquire()


def test_a_candidate_that_the_store_fails_does_not_stand_in_the_way_of_the_next(location):
    class Failing(CountingFiles):
        def list(self, folder):
            raise OSError("the store cannot be reached")

    runtime = Machine()
    with pytest.raises(OSError, match="reached"):
        lease(location, runtime, "one", files=Failing(location), started_at=lambda _: "").acquire()
    runtime.now += 1
    lease(location, runtime, "one", started_at=lambda _: "").acquire()


def test_of_two_candidates_one_wins_whatever_their_clocks_say(location):
    late, early = Machine(2000.0), Machine(1000.0)
    waits = threading.Event()
    errors = []

    def wait(_seconds):
        waits.set()
        time.sleep(0.05)

    def compete():
        try:
            lease(location, early, "early").acquire()
        except SyphonError as exc:
            errors.append(str(exc))

    # `early` comes first by name, and finds `late` before it has confirmed: it has to wait for it.
    early.sleep = wait
    other = threading.Thread(target=compete)

    class Interrupting(CountingFiles):
        """The other candidate comes between this one's listing and its confirmation."""

        def list(self, folder):
            found = super().list(folder)
            if not other.ident:
                other.start()
                assert waits.wait(60)
            return found

    lease(location, late, "late", files=Interrupting(location)).acquire()
    other.join(60)
    assert len(errors) == 1
    assert "host late" in errors[0]


def test_a_retry_leaves_the_queue_and_the_coordinator_waits_for_it(location):
    runtime = ThreadRuntime()
    files, path = open_files(location, runtime)
    coordinator, task = (ObjectJournal(path, files, runtime) for _ in range(2))
    orphans = OrphanedLocks(coordinator)
    orphans.search(0, orphans.read(0), 1.0)
    task.open_page(1, QUEUE)
    task.open_page(1, "other")
    assert task.take_over(1, "third") == []
    (found,) = task.take_over(1, QUEUE)
    assert found.is_open
    assert found.is_taken_over
    orphans.search(1, orphans.read(1), 2.0)
    assert orphans.queues() == [QUEUE]
    coordinator.drop_before(2)
    assert [page.queue for page in coordinator.pages_of("other")] == []
    assert coordinator.queues_of(1) == {QUEUE}
    assert coordinator.queues_of(2) == set()
    (page,) = coordinator.uncertain(1)[QUEUE]
    page.remove()
    assert files.tree(path / "journal") == {}


def test_pages_of_a_lost_driver_are_uncertain_even_without_sparks_checkpoint(location):
    runtime = ThreadRuntime()
    files, path = open_files(location, runtime)
    ObjectJournal(path, files, runtime).open_page(57, QUEUE)
    orphans = OrphanedLocks(ObjectJournal(path, files, runtime))
    orphans.search(0, orphans.read(0), 1.0)  # epochs begin again
    assert orphans.queues() == [QUEUE]


def test_a_micro_batch_costs_one_write_and_one_listing_per_queue(location, pair):
    pair.fill([backlog_message("orders", n) for n in range(500)])
    runtime = ThreadRuntime()
    _, path = open_files(location, runtime)
    counting = CountingFiles(location)
    link = NamespaceConnections(
        ConnectionPool(runtime), Target(pair.secondary.connection_string), "reader"
    )
    backlog = BacklogQueues(runtime, link)
    reader = BacklogReader(
        runtime, QueueReceiver(link, is_ordered=True), backlog, namespace="contoso-dr",
        journal=ObjectJournal(path, counting, runtime), batch_size=50,
    )  # fmt: skip
    tokens = []
    for batch in reader.read(1, [Grant(QUEUE, 500, 1 << 30)]):
        tokens += [token for token, _ in batch.messages]
    assert len(tokens) == 500
    assert len(counting.writes) == 1
    assert len(counting.listings) == 1
    assert PurePosixPath(counting.writes[0]).parent.name == "1"
    backlog.settle(QUEUE, tokens, "completed")
