"""A syphon that cannot start leaves nothing open. No Java runs here."""

import pyarrow.dataset as ds
import pytest

from pairbus.exceptions import SyphonError
from pairbus.spark import handle
from pairbus.spark import syphon as module
from pairbus.spark.syphon import start_syphon
from pairbus.syphon.lease import Lease
from pairbus.syphon.state import StateDirectory


class Session:
    """A session that can only be stopped."""

    def __init__(self):
        self.is_stopped = False

    def stop(self):
        self.is_stopped = True


class QueryError(Exception):
    pass


@pytest.fixture
def session(monkeypatch):
    session = Session()

    def fail(*_args):
        raise QueryError

    monkeypatch.setattr(module, "open_session", lambda _master: session)
    monkeypatch.setattr(module, "prepare_session", lambda session, **_options: session)
    monkeypatch.setattr(module, "backlog", fail)
    return session


def test_a_query_that_cannot_be_built_stops_the_session_and_releases_the_lease(pair, session):
    for _ in range(2):  # the second start finds the lease free
        session.is_stopped = False
        with pytest.raises(QueryError):
            start_syphon(pair.options())
        assert session.is_stopped


def test_a_session_that_cannot_be_prepared_is_stopped(pair, session, monkeypatch):
    def fail(_session, **_options):
        raise QueryError

    monkeypatch.setattr(module, "prepare_session", fail)
    with pytest.raises(QueryError):
        start_syphon(pair.options())
    assert session.is_stopped


def test_a_session_of_the_caller_is_not_stopped(pair, session):
    with pytest.raises(QueryError):
        start_syphon(pair.options(), spark=session)
    assert not session.is_stopped


def test_the_operations_of_a_failed_start_are_in_the_ledger(pair, session):
    with pytest.raises(QueryError):
        start_syphon(pair.options())
    rows = ds.dataset(pair.folder / "ledger" / "operations").to_table().to_pylist()
    assert {row["stage"] for row in rows} == {"management"}


def no_credential():
    raise RuntimeError("a secret of the credential")


def test_a_credential_of_the_primary_that_fails_at_the_start_is_reported_in_one_line(pair, session):
    options = pair.options(
        primary=f"{__name__}:no_credential", primary_host=f"127.0.0.1:{pair.primary.port}"
    )
    with pytest.raises(SyphonError, match=r"^primary .*: the credential failed: RuntimeError$"):
        start_syphon(options)


@pytest.mark.parametrize("method", ["begin_run", "change_controls", "write_target"])
def test_a_state_directory_that_fails_is_reported_in_one_line(pair, session, monkeypatch, method):
    def fail(*_args, **_options):
        raise OSError("Stale file handle")

    monkeypatch.setattr(StateDirectory, method, fail)
    with pytest.raises(SyphonError, match=r"state directory .*: Stale file handle"):
        start_syphon(pair.options(max_messages_per_second=5, checkpoint=str(pair.folder / method)))


def test_a_syphon_that_lost_its_lease_while_spark_started_runs_no_query(pair, session, monkeypatch):
    def open_session(_master):
        monkeypatch.setattr(Lease, "renew", lambda _lease: False)  # another one has taken over
        return session

    monkeypatch.setattr(module, "open_session", open_session)
    monkeypatch.setattr(module, "backlog", lambda *_args: None)
    monkeypatch.setattr(module, "restore", lambda *_args, **_options: None)
    monkeypatch.setattr(handle, "deliver", lambda *_args: pytest.fail("the query was started"))
    with pytest.raises(SyphonError, match="another syphon has taken over"):
        start_syphon(pair.options())
    assert session.is_stopped
