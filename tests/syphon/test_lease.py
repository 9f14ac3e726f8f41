"""One syphon per state directory."""

import json
import os
import subprocess
import sys

import pytest

from pairbus.exceptions import SyphonError
from pairbus.runtime.processes import started_at
from pairbus.syphon.lease import EXPIRES_AFTER, Lease
from tests.syphon.fakes import FakeTimeRuntime


class Machines:
    """Processes on two machines that share a state directory."""

    def __init__(self, path):
        self.runtime, self.path = FakeTimeRuntime(1_700_000_000.0), path
        self.started = {7: "100", 8: "200"}

    def lease(self, host, pid, boot="first"):
        return Lease(
            self.runtime,
            self.path,
            host=host,
            pid=pid,
            started_at=self.started.get,
            machine=f"{host} {boot} boot",
        )


@pytest.fixture
def machines(tmp_path):
    return Machines(tmp_path)


def test_a_second_syphon_is_refused_and_told_who_runs(machines):
    machines.lease("alpha", 7).acquire()
    for host in ("alpha", "beta"):
        with pytest.raises(SyphonError) as caught:
            machines.lease(host, 8).acquire()
        assert "host alpha, process 7, since 2023-11-14T22:13:20+00:00" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_lease_that_was_released_is_free(machines):
    first, second = machines.lease("alpha", 7), machines.lease("beta", 8)
    first.acquire()
    second.release()  # not its own: does nothing
    with pytest.raises(SyphonError):
        second.acquire()
    first.release()
    second.acquire()


def test_the_lease_of_a_dead_process_on_the_same_machine_is_free_immediately(machines):
    machines.lease("alpha", 7).acquire()
    del machines.started[7]
    machines.lease("alpha", 8).acquire()


def test_another_process_with_the_id_of_the_holder_does_not_hold_its_lease(machines):
    machines.lease("alpha", 7).acquire()
    machines.started[7] = "300"
    machines.lease("alpha", 7).acquire()


def test_the_id_of_a_process_means_nothing_after_a_reboot_or_in_another_container(machines):
    machines.lease("alpha", 7).acquire()
    again = machines.lease("alpha", 7, boot="second")
    with pytest.raises(SyphonError):  # it may be alive in the other container
        again.acquire()
    machines.runtime.now += EXPIRES_AFTER + 1
    again.acquire()


def test_the_lease_of_an_earlier_version_expires(machines):
    old = {"id": "x", "host": "alpha", "pid": 7, "since": 0.0, "renewed_at": machines.runtime.now}
    (machines.path / "lease.json").write_text(json.dumps(old))
    with pytest.raises(SyphonError):
        machines.lease("alpha", 8).acquire()
    machines.runtime.now += EXPIRES_AFTER + 1
    machines.lease("alpha", 8).acquire()


def test_a_process_that_was_killed_has_ended_even_if_nobody_waits_for_it():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert started_at(process.pid) == started_at(process.pid)
    assert started_at(process.pid) is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert started_at(process.pid) is None
    assert started_at(2**40) is None, "no process has such an id"
    process.communicate()
    assert started_at(process.pid) is None


def test_a_slow_holder_on_the_same_machine_keeps_its_lease_while_it_lives(machines):
    machines.lease("alpha", 7).acquire()
    machines.runtime.now += 10 * EXPIRES_AFTER
    with pytest.raises(SyphonError):
        machines.lease("alpha", 8).acquire()


def test_the_lease_of_another_machine_expires_without_renewal_and_its_holder_learns_of_it(machines):
    first, second = machines.lease("alpha", 7), machines.lease("beta", 8)
    first.acquire()
    for _ in range(20):
        machines.runtime.now += EXPIRES_AFTER / 2
        assert first.renew()
        with pytest.raises(SyphonError):
            second.acquire()
    machines.runtime.now += EXPIRES_AFTER + 1
    second.acquire()
    assert not first.renew()
    assert second.renew()
    first.release()
    assert second.renew()


def test_a_broken_lease_file_is_no_obstacle(machines):
    (machines.path / "lease.json").write_text("{")
    machines.lease("alpha", 7).acquire()


def test_a_lease_that_cannot_be_read_is_not_free(machines, monkeypatch):
    def fail(_files, _path):
        raise OSError("Stale file handle")

    machines.lease("alpha", 7).acquire()
    monkeypatch.setattr(type(machines.runtime.files), "read", fail)
    with pytest.raises(OSError, match="Stale file handle"):
        machines.lease("beta", 8).acquire()


def test_a_renewal_that_could_not_be_written_is_repeated(machines):
    lease, path = machines.lease("alpha", 7), machines.path / "lease.json"
    lease.acquire()
    machines.runtime.now += EXPIRES_AFTER / 2
    path.unlink()
    path.mkdir()
    for _ in range(2):
        with pytest.raises(OSError, match="Is a directory"):
            lease.renew()
    path.rmdir()
    assert lease.renew()
    assert json.loads(path.read_text())["renewed_at"] == machines.runtime.now
