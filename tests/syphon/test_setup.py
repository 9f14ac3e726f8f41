"""The syphon's directories."""

import os
from pathlib import Path

from pairbus.syphon.setup import default_checkpoint


def test_default_checkpoint_is_in_a_state_folder_that_does_not_exist_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path).is_relative_to(tmp_path))

    assert Path(default_checkpoint("contoso", "contoso-dr")).is_relative_to(tmp_path / "state")
