"""The operator's controls: changed from several processes, kept across restarts and versions."""

import json
import threading

import pytest

from pairbus.monitoring.sources import control_syphon
from pairbus.syphon.records import Control
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import SyphonStatus


def test_controls_have_defaults_and_survive_a_restart(tmp_path):
    assert StateDirectory(tmp_path).control() == Control()
    StateDirectory(tmp_path / "new").change_controls(paused=True, max_messages_per_second=10)
    StateDirectory(tmp_path / "new").change_controls(max_messages_per_second=None)
    assert StateDirectory(tmp_path / "new").control() == Control(paused=True)


def test_an_unknown_control_is_refused(tmp_path):
    with pytest.raises(TypeError, match="speed"):
        StateDirectory(tmp_path).change_controls(speed=3)


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_a_rate_that_is_no_finite_number_is_no_limit(tmp_path, rate):
    control = StateDirectory(tmp_path).change_controls(max_messages_per_second=rate)
    assert control == StateDirectory(tmp_path).control() == Control()


def test_the_control_file_of_an_earlier_version_is_read(tmp_path):
    old = {"paused": True, "max_messages_per_second": 50, "max_bytes_per_second": None}
    (tmp_path / "control.json").write_text(json.dumps(old))
    assert StateDirectory(tmp_path).control() == Control(paused=True, max_messages_per_second=50)
    StateDirectory(tmp_path).change_controls(paused=False)
    assert StateDirectory(tmp_path).control() == Control(max_messages_per_second=50)


def test_a_pause_from_the_page_does_not_lose_a_limit_set_at_the_same_time(tmp_path):
    status = SyphonStatus.from_json({"id": "s1", "checkpoint": str(tmp_path)})
    ended = threading.Event()

    def pause_and_resume():
        paused = False
        while not ended.is_set():
            paused = not paused
            control_syphon(status, paused=paused)

    page = threading.Thread(target=pause_and_resume)
    page.start()
    try:
        for rate in range(1, 500):
            StateDirectory(tmp_path).change_controls(max_messages_per_second=rate)
            assert StateDirectory(tmp_path).control().max_messages_per_second == rate
    finally:
        ended.set()
        page.join()


def test_a_syphon_stays_paused_while_its_controls_cannot_be_read(tmp_path):
    state = StateDirectory(tmp_path)
    assert state.change_controls(paused=True).paused
    cannot_be_read(tmp_path / "controls" / "paused.json")
    assert state.control().paused
    with pytest.raises(IsADirectoryError):  # a task that has just started does not know them
        StateDirectory(tmp_path).control()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("waiting.json", StateDirectory.blocked),  # messages would overtake those that wait
        ("held.json", StateDirectory.held),
        ("target.json", StateDirectory.target),  # messages with a receipt would be sent again
        ("search.json", StateDirectory.unsearched),
    ],
)
def test_a_record_that_cannot_be_read_does_not_count_as_missing(tmp_path, name, read):
    assert read(StateDirectory(tmp_path)) is not None
    cannot_be_read(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read(StateDirectory(tmp_path))


def cannot_be_read(path):
    """Put a directory in the place of a file: reading it fails, as on a share that is away."""
    path.unlink(missing_ok=True)
    path.mkdir()
