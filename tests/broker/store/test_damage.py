"""Damage in the middle of the store's log: never silently less than was acknowledged."""

from __future__ import annotations

import re
import shutil

import pytest
from click.testing import CliRunner

from pairbus.broker import BrokerStartError, run
from pairbus.broker.store.salvage import salvage
from pairbus.broker.store.store import DATABASE, Store, StoreDamagedError, StoreInUseError
from pairbus.cli.main import cli
from tests.broker.entities.kit import Bench

COUNT = 300
FRAME = 24 + 8192


@pytest.fixture
def folder(tmp_path):
    """A copy of the files of a broker that was killed after it acknowledged some messages."""
    store = Store(tmp_path / "live")
    bench = Bench(store)
    for n in range(COUNT):
        bench.send(b"%d" % n)
    shutil.copytree(tmp_path / "live", tmp_path / "copy")
    store.close()
    return tmp_path / "copy"


@pytest.fixture
def wal(folder):
    return folder / f"{DATABASE}-wal"


def flip(path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(bytes(data))


def bodies(folder) -> list[bytes | None]:
    store = Store(folder)
    try:
        return [d.message.bare for d in Bench(store).ns.peek("q", 0, COUNT)]
    finally:
        store.close()


@pytest.mark.parametrize("place", [2000, 40, 0], ids=["page", "salt", "header"])
def test_damage_in_the_middle_is_an_error_at_start_that_names_file_and_offset(folder, wal, place):
    frames = (wal.stat().st_size - 32) // FRAME
    bad = 32 + frames // 2 * FRAME if place == 2000 else 32 if place == 40 else 0
    flip(wal, bad + place if place == 2000 else place)
    before = wal.read_bytes()
    with pytest.raises(StoreDamagedError, match=rf"-wal' is damaged at offset {bad}:") as caught:
        Store(folder)
    assert "pairbus broker salvage" in str(caught.value)
    assert wal.read_bytes() == before
    with pytest.raises(BrokerStartError, match="is damaged at offset"), run(data=folder):
        pass


@pytest.mark.parametrize("cut", [1, 100, FRAME - 1, FRAME])
def test_a_torn_tail_is_cut_and_costs_only_what_was_being_written(folder, wal, cut):
    wal.write_bytes(wal.read_bytes()[:-cut])
    assert bodies(folder) == [b"%d" % n for n in range(COUNT - 1)]


def test_a_last_frame_that_was_half_written_over_an_old_one_is_a_torn_tail(folder, wal):
    flip(wal, wal.stat().st_size - 100)
    assert bodies(folder) == [b"%d" % n for n in range(COUNT - 1)]


def test_salvage_keeps_what_is_intact_and_the_damaged_file(folder, wal):
    whole = wal.read_bytes()
    frames = (len(whole) - 32) // FRAME
    flip(wal, 32 + frames // 2 * FRAME + 100)
    damaged = wal.read_bytes()
    result = CliRunner().invoke(cli, ["broker", "salvage", str(folder)])
    assert result.exit_code == 0, result.output
    lost = int(re.findall(r"(\d+) transactions", result.output)[0])
    assert wal.with_name(wal.name + ".damaged").read_bytes() == damaged
    left = bodies(folder)
    assert left == [b"%d" % n for n in range(len(left))]
    assert len(left) + lost + 1 == COUNT  # the damaged one is lost as well
    result = CliRunner().invoke(cli, ["broker", "salvage", str(folder)])
    assert "no damage found" in result.output


def test_salvage_leaves_a_broker_in_use_alone(folder):
    store = Store(folder)
    with pytest.raises(StoreInUseError):
        salvage(folder)
    store.close()
