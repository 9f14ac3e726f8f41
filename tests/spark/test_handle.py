"""The thread that watches a running query, with a query that needs no Java."""

import contextlib
import errno
import logging
import threading
from types import SimpleNamespace

import pytest

from pairbus.exceptions import SyphonError
from pairbus.spark import handle as module
from pairbus.spark.handle import SyphonHandle
from pairbus.syphon.setup import Bounds
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_monitor import StatusMonitor
from pairbus.syphon.status_records import ProgressRecord, SyphonStatus
from tests.syphon.fakes import FakeTimeRuntime

IDENTITY = SyphonStatus(
    id="s", host="h", pid=1, primary="contoso", secondary="contoso-dr", checkpoint="c"
)
STALE = OSError(errno.ESTALE, "Stale file handle")


def raise_(error):
    raise error


class FakeQuery:
    """A query that is idle. `failure` is raised when it is asked whether it is active."""

    def __init__(self):
        self.status = {"isTriggerActive": False, "isDataAvailable": False}
        self.failure, self.is_stopped = None, False

    @property
    def isActive(self):
        if self.failure is not None:
            raise self.failure
        return not self.is_stopped

    def exception(self):
        return OSError("the checkpoint cannot be written")

    def stop(self):
        self.is_stopped = True


class Py4JNetworkError(Exception):
    """As Py4J raises it."""


class Py4JJavaError(Exception):
    """As Py4J raises it: Java answers with an exception."""


class Syphon:
    """A syphon whose lease and state directory fail as the test wants."""

    def __init__(self, path, monkeypatch, bounds, lease_answers):
        self.state, self.query = StateDirectory(path).create(), FakeQuery()
        self.lease_answers = list(lease_answers)  # the last one is repeated
        self.renewals = threading.Semaphore(0)
        self.starts, self.start_failure = threading.Semaphore(0), None
        monkeypatch.setattr(module, "deliver", self.deliver)
        monitor = StatusMonitor(FakeTimeRuntime(), self.state, IDENTITY, lambda: ())
        setup = SimpleNamespace(primary_name="contoso", state_shown=str(path))
        self.handle = SyphonHandle(
            setup, self.state, monitor, None, bounds, lambda: None, self.renew, self.peeking
        )
        self.peeks = [True]  # the last one is repeated
        self.is_peeking = False

    @contextlib.contextmanager
    def peeking(self):
        self.is_peeking = True
        try:
            yield self.peek
        finally:
            self.is_peeking = False

    def peek(self):
        return self.peeks.pop(0) if self.peeks[1:] else self.peeks[0]

    def deliver(self, _messages, _setup):
        self.starts.release()
        if self.start_failure is not None:
            raise self.start_failure
        return self.query

    def await_starts(self, number):
        for _ in range(number):
            assert self.starts.acquire(timeout=10)

    def renew(self):
        self.renewals.release()
        answer = self.lease_answers.pop(0) if self.lease_answers[1:] else self.lease_answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def await_renewals(self, number):
        for _ in range(number):
            assert self.renewals.acquire(timeout=10)


@pytest.fixture
def start(tmp_path, monkeypatch):
    started = []

    def start(lease_answers=(True,), **bounds):
        started.append(Syphon(tmp_path, monkeypatch, Bounds(**bounds), lease_answers))
        return started[-1]

    yield start
    for syphon in started:
        syphon.handle.stop()


def test_a_lease_that_cannot_be_renewed_for_a_moment_does_not_end_the_syphon(start, caplog):
    syphon = start()
    with caplog.at_level(logging.WARNING, "pairbus"):
        syphon.lease_answers[:] = [STALE, STALE, True]
        syphon.await_renewals(5)
    assert syphon.handle.error is None
    assert [record.getMessage() for record in caplog.records] == [f"state directory: {STALE}"]


def test_a_state_that_cannot_be_read_for_a_moment_neither_ends_the_syphon_nor_counts_as_empty(
    start, monkeypatch
):
    syphon = start(until_empty=True)
    syphon.await_renewals(2)  # the state was read once
    failures = threading.Semaphore(0)

    def fail(_name):
        failures.release()
        raise STALE

    with monkeypatch.context() as broken:
        broken.setattr(syphon.state, "_find", fail)
        for _ in range(4):
            assert failures.acquire(timeout=10)
        status = syphon.handle.status()
        assert (status["state"], status["stalled"]) == ("stalled", f"state directory: {STALE}")
    assert not syphon.handle.wait(0)
    syphon.state.write_progress(ProgressRecord(is_empty=True))
    assert syphon.handle.wait(10)


def test_a_lease_that_cannot_be_renewed_while_it_lasts_ends_the_syphon(start, monkeypatch):
    monkeypatch.setattr(module, "EXPIRES_AFTER", module.RENEW_EVERY)  # it is over immediately
    syphon = start()
    syphon.lease_answers[:] = [STALE]
    with pytest.raises(SyphonError, match=r"the lease cannot be renewed: .*Stale file handle"):
        syphon.handle.wait(10)
    assert syphon.query.is_stopped


def test_a_syphon_whose_state_was_taken_over_leaves_it_to_the_new_one(start):
    syphon = start(lease_answers=[False])
    with pytest.raises(SyphonError, match="another syphon has taken over"):
        syphon.handle.wait(10)
    assert syphon.query.is_stopped
    assert not syphon.state.is_stopping
    assert syphon.state.read("status.json") == {}


def test_a_query_that_fails_with_the_state_directory_is_restarted_until_the_lease_ends(
    start, monkeypatch
):
    monkeypatch.setattr(module, "RESTARTS", 0)  # a failure of another kind would end the syphon
    syphon = start()
    syphon.await_starts(1)
    with monkeypatch.context() as broken:
        broken.setattr(syphon.state, "_find", lambda _name: raise_(STALE))
        syphon.start_failure = Py4JJavaError("java.io.IOException: Stale file handle")
        syphon.query.is_stopped = True
        syphon.await_starts(2)
        assert syphon.handle.error is None
        syphon.start_failure, syphon.query.is_stopped = None, False


def test_waiting_until_empty_outlives_a_state_that_cannot_be_read(start, monkeypatch):
    syphon = start()
    syphon.await_renewals(1)
    with monkeypatch.context() as broken:
        broken.setattr(syphon.state, "_find", lambda _name: raise_(STALE))
        assert not syphon.handle.wait_until_empty(timeout=0.5)


def test_waiting_until_empty_peeks_until_the_queues_are_empty(start, monkeypatch):
    monkeypatch.setattr(module, "PEEK_EVERY", 0.01)
    syphon = start()
    syphon.peeks = [False, False, True]
    assert syphon.handle.wait_until_empty(timeout=60)
    assert not syphon.is_peeking


@pytest.mark.parametrize("failure", [Py4JNetworkError("closed"), ConnectionRefusedError("no")])
def test_only_errors_of_java_mean_that_java_is_gone(start, failure):
    syphon = start()
    syphon.query.failure = failure
    with pytest.raises(SyphonError, match="Spark's Java process is gone"):
        syphon.handle.wait(10)
