"""``kill -9`` at any moment: what was acknowledged is there, what was completed is not."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store.store import Store
from tests.broker.store import writer

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([writer.__name__])  # imported once, not for each of the processes


class Account:
    """What the writers said over all their lives."""

    def __init__(self) -> None:
        self.said: dict[str, set[int]] = {letter: set() for letter in "sScC"}

    def listen(self, output: bytes) -> None:
        *lines, _cut = output.decode().split("\n")
        for line in lines:
            self.said[line[0]].add(int(line[1:]))

    def check(self, directory: Path) -> None:
        store = Store(directory)
        namespace = Namespace("check", store)
        there = [int(d.message.bare or b"") for d in namespace.peek("q", 0, 1_000_000)]
        numbers = [d.message.sequence_number for d in namespace.peek("q", 0, 1_000_000)]
        size = namespace.admin.runtime("q").size_in_bytes
        store.close()
        said = self.said
        assert len(set(there)) == len(there), "a message is there twice"
        assert numbers == sorted(set(numbers))
        assert said["S"] - said["c"] <= set(there), "an acknowledged message is lost"
        assert not said["C"] & set(there), "a completed message came back"
        assert set(there) <= said["s"], "a message came from nowhere"
        assert size == sum(len(str(n)) for n in there)


def run(directory: Path, account: Account, statement: int, seed: int, lines: int = 0) -> None:
    output, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(
        target=writer.start, args=(theirs, str(directory), statement, seed), daemon=True
    )
    process.start()
    theirs.close()
    heard = b""
    while chunk := os.read(output.fileno(), 65536):
        heard += chunk
        if lines and heard.count(b"\n") >= lines:
            process.kill()
            lines = 0
    process.join()
    output.close()
    account.listen(heard)


@pytest.mark.crash
@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_statement_of_a_group_loses_nothing(tmp_path):
    account = Account()
    for seed, statement in enumerate([*range(1, 10), 17, 40, 90, 200], 1):
        run(tmp_path, account, statement, seed)
        account.check(tmp_path)
    assert account.said["S"]


@pytest.mark.crash
@pytest.mark.slow
def test_a_writer_that_is_killed_under_load_loses_nothing(tmp_path):
    account = Account()
    for seed in range(1, 7):
        run(tmp_path, account, 0, seed, lines=300 * seed)
        account.check(tmp_path)
    assert account.said["S"]
    assert account.said["C"]
