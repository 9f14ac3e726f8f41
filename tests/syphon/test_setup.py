"""The syphon's directories."""

import os
from pathlib import Path

from pairbus.ledger import Store
from pairbus.options import SyphonOptions
from pairbus.syphon.setup import Setup, default_checkpoint


def test_default_checkpoint_is_in_a_state_folder_that_does_not_exist_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path).is_relative_to(tmp_path))

    assert Path(default_checkpoint("contoso", "contoso-dr")).is_relative_to(tmp_path / "state")


def test_a_ledger_in_the_home_directory_is_that_of_the_senders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    access = (
        "Endpoint=sb://{}.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
    )
    options = SyphonOptions(
        primary=access.format("contoso"),
        secondary=access.format("contoso-dr"),
        ledger="~/ledger",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    assert Store(Setup.of(options).ledger).path("") == Store("~/ledger").path("")
