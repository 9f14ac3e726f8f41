"""The ledger of a run: the real writers on files in memory, and the rules of its reports.

Applications and syphons write their rows as in production. At the end `pairbus.reports.fates`, the
rules that `pairbus reconcile` and `pairbus cost` apply on Spark, must give what the brokers saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset  # its C code must see the real datetime
import pyarrow.parquet as pq

from pairbus.ledger import files as ledger_files
from pairbus.ledger import writer as writer_module
from pairbus.ledger.plan import FileFacts, arrange
from pairbus.ledger.receipts import ReceiptWriter
from pairbus.ledger.writer import LedgerWriter
from pairbus.pairing._async import lifecycle
from pairbus.pricing import Rules
from pairbus.reports.fates import charged, fate
from pairbus.spark.ledger import SyphonLedger
from simulation.files import SimulatedFiles
from simulation.loop import SimulatedLoop
from simulation.runtime import SimulatedRuntime

LOCATION = "/ledger"
FLUSH = 10.0  # seconds between two writes of an application
Taken = Sequence[tuple[float, str, str]]


class LedgerRuntime(SimulatedRuntime):
    """The runtime of a writer, whose locks and events nobody waits for in one thread."""

    def lock(self) -> Any:
        """A lock that is free whenever it is asked for."""
        return threading.Lock()

    def event(self) -> Any:
        """An event that is set and never waited for."""
        return threading.Event()


class _Flushing:
    """The task that writes now and then, as the writer sees it."""

    is_done = True

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def join(self, timeout: float | None = None) -> bool:
        """Stop it."""
        self._task.cancel()
        return True


class SimulatedLedgerWriter(LedgerWriter):
    """A writer whose background task runs on the simulated loop, in the process that uses it."""

    _loop: SimulatedLoop

    def _start(self) -> None:
        self._task = _Flushing(self._loop.create_task(self._flush_regularly()))

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(FLUSH)
            self.flush()


class _NoStatusFile:
    """Status files are no part of the ledger's tables."""

    def __init__(self, *arguments: Any) -> None:
        pass

    def notify(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Nothing is to be removed."""


class Ledger:
    """One ledger that all processes of a run write to; its disk can fail.

    Args:
        loop: the run.
        files: the disk.
    """

    def __init__(self, loop: SimulatedLoop, files: SimulatedFiles) -> None:
        self._loop = loop
        self.files = files
        self._writers = 0
        self._read: dict[tuple[str, ...], tuple[list[dict[str, Any]], list[str]]] = {}

    def _runtime(self) -> Any:
        self._writers += 1
        return LedgerRuntime(self._loop, f"ledger {self._writers}", self.files)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this block paired clients write to this ledger, without threads."""
        fakes: list[tuple[Any, str, Any]] = [
            (writer_module, "LedgerWriter", self.writer),
            (lifecycle, "StatusFile", _NoStatusFile),
        ]
        real = [getattr(module, name) for module, name, _ in fakes]
        for module, name, fake in fakes:
            setattr(module, name, fake)
        try:
            yield
        finally:
            for (module, name, _), value in zip(fakes, real, strict=True):
                setattr(module, name, value)

    def writer(self, location: str, *, client_id: str) -> LedgerWriter:
        """A writer of an application."""
        made = SimulatedLedgerWriter(location, client_id=client_id, runtime=self._runtime())
        made._loop = self._loop  # noqa: SLF001 - of the class above
        return made

    def receipts(self, name: str) -> ReceiptWriter:
        """A writer of receipts, for one worker of a syphon."""
        return ReceiptWriter(LOCATION, client_id=name, runtime=self._runtime())

    def operations(self, name: str) -> LedgerOperations:
        """What a coordinator counts operations with."""
        return LedgerOperations(self.writer(LOCATION, client_id=name), self.receipts(name))

    # -- reading

    def read(self, table: str) -> tuple[list[dict[str, Any]], list[str]]:
        """All rows of a table, without times, and what is wrong with its files."""
        names = self.files.list(f"{LOCATION}/{table}")
        if (key := (table, *names)) not in self._read:
            self._read[key] = self._read_files(table, names)
        return self._read[key]

    def _read_files(
        self, table: str, names: Sequence[str]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        rows: list[dict[str, Any]] = []
        facts: list[FileFacts] = []
        for name in names:
            read = pq.read_table(pa.BufferReader(self.files.read(f"{LOCATION}/{table}/{name}")))
            ranges = ledger_files.decode_ranges(read.schema.metadata)
            facts.append(FileFacts(name, read.num_rows, ranges, None, None))
            times = [f.name for f in read.schema if pa.types.is_timestamp(f.type)]
            rows += read.drop(times).to_pylist()
        plan = arrange(table, facts)
        wrong = [f"ledger: {gap} are missing" for gap in plan.gaps]
        wrong += [
            f"ledger: {file.name} repeats rows" for file in (*plan.overlapping, *plan.repeats)
        ]
        return rows, wrong


class LedgerOperations(SyphonLedger):
    """The syphon's entries in the ledger, in simulated files.

    Args:
        writer: writes the operations.
        receipts: writes the probe.
    """

    def __init__(self, writer: LedgerWriter, receipts: ReceiptWriter) -> None:
        self._writer = writer
        self._receipts = receipts

    def probe(self) -> str | None:
        """Return why no receipt could be written now; None if one could."""
        return self._receipts.probe()


Key = tuple[str, str]
"""Destination, in lower case, and message id."""


def tallies(rows: Iterable[Mapping[str, Any]]) -> dict[Key, Counter[str]]:
    """Count rows of the messages table as `pairbus.reports.reconcile_job` does; none is waiting."""
    found: dict[Key, Counter[str]] = {}
    for row in rows:
        name = row["message_id"]
        if name is None:
            name = f"\0#{row['backlog_queue']}#{row['sequence_number']}"
        tally = found.setdefault(((row["destination"] or "").lower(), name), Counter())
        is_expired = "expired" in (row["reason"] or "").lower()
        letters = {"backlogged": "b", "forwarded": "f", "completed": "c"}
        tally[letters.get(row["event"], "e" if is_expired else "d")] += 1
    return found


def disagreements(
    ledger: Ledger,
    backlog: Taken,
    primary: Taken,
    ids: dict[str, str],
    recorded: Container[str],
    billed: Mapping[str, int],
) -> list[str]:
    """Where the ledger contradicts what the brokers took.

    Args:
        ledger: the ledger.
        backlog: what the secondary took: when, which queue, which message.
        primary: what the primary took.
        ids: the messages by their ids.
        recorded: messages whose senders must have recorded that a backlog queue took them.
        billed: by stages of `cost`, the operations that the brokers counted: no more are charged.
    """
    messages, found = ledger.read("messages")
    operations, wrong = ledger.read("operations")
    found += wrong
    entered, arrived = Counter(name for *_, name in backlog), Counter(name for *_, name in primary)
    for (place, key), tally in tallies(messages).items():
        name, became = ids.get(key, key), fate(Counter(tally))
        if became["lost"] or became["dead_lettered"]:
            found.append(f"ledger: reconcile calls {name} for {place} lost or dead-lettered")
        if tally["b"] > entered[name] or tally["f"] > arrived[name]:
            found.append(f"ledger: more rows of {name} than times that it was taken")
        if became["unrecorded"] and name in recorded:
            found.append(f"ledger: {name} was forwarded and is not recorded as backlogged")
    limits = {
        "send_backlog": sum(entered.values()),
        "send_primary": sum(arrived.values()),
        **billed,
    }
    sums = {stage: _charged(operations, stage) for stage in limits}
    for stage, number in sums.items():
        if number > limits[stage]:
            found.append(f"ledger: cost counts {number} of {stage}, and there were {limits[stage]}")
    if sums["send_backlog"] != sum(row["event"] == "backlogged" for row in messages):
        found.append("ledger: the two tables disagree on how many messages were backlogged")
    return found


def _charged(operations: list[dict[str, Any]], stage: str) -> int:
    """What cost counts for one of the stages."""
    rows = [row for row in operations if row["stage"] == stage]
    return sum(charged({**row, "tried": row["billable"]}, Rules())[0] for row in rows)
