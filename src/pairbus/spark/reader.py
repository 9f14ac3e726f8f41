"""What a task of the source does: browse, or receive what is there now up to a cap.

It runs on executors: it takes connections from the pool of its process, and never waits for more
messages than there are.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from pairbus.envelope.encoded import open_message
from pairbus.names import BILLING_STEP, billable
from pairbus.spark.options import ConnectorOptions
from pairbus.spark.rows import RowMaker
from pairbus.spark.schema import select
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.journal import Journal
from pairbus.syphon.limits import Grant

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.syphon.wire import Receiving

__all__ = ["PeekPartition", "ReceivePartition", "columns_of", "peek", "receive"]


@dataclass(frozen=True)
class PeekPartition(InputPartition):
    """Browse one entity: from this number on, before that one."""

    entity: str
    start: int
    end: int | None
    most: int | None


@dataclass(frozen=True)
class ReceivePartition(InputPartition):
    """Receive from some queues, one after the other."""

    epoch: int
    grants: tuple[Grant, ...]


def columns_of(options: ConnectorOptions) -> Any:
    """The columns that were asked for."""
    return select(options["columns"], aliases=options["aliases"])


def _maker(options: ConnectorOptions) -> RowMaker:
    return RowMaker(columns_of(options), aliases=options["aliases"])


def peek(options: ConnectorOptions, partition: PeekPartition) -> "Iterator[pa.RecordBatch]":
    """Browse an entity."""
    from pairbus.syphon.wire import Browser

    browser, maker = Browser(options.target, "reader"), _maker(options)
    first, left = partition.start, partition.most if partition.most is not None else 1 << 62
    while left > 0 and (partition.end is None or first < partition.end):
        found = browser.peek(partition.entity, first, min(left, 250))
        pairs = [(m, open_message(m, aliases=options["aliases"])) for m in found]
        if partition.end is not None:
            pairs = [p for p in pairs if (p[1].sequence_number or 0) < partition.end]
        if not pairs:
            return
        first = 1 + max(opened.sequence_number or 0 for _, opened in pairs)
        left -= len(pairs)
        now = time.time_ns() // 1000
        yield maker.batch_of(
            partition.entity, now, [(None, m) for m, _ in pairs], [o for _, o in pairs]
        )


def receive(options: ConnectorOptions, partition: ReceivePartition) -> "Iterator[pa.RecordBatch]":
    """Receive what is there now, queue by queue, up to each queue's cap.

    That it asks, and then the tokens that it got, are in the journal before their rows go on. A
    retry of the same epoch gives back what the journal has, newest first, before it receives; where
    an earlier attempt may have got more than it noted, it leaves the queue to the keeper.
    """
    from pairbus.syphon.connections import settle_in
    from pairbus.syphon.wire import Receiving

    settle_in()
    taking = options["mode"] == "receiveAndDelete"
    location = options["stateLocation"]
    state = StateDir(location) if location else None
    journal = Journal(location) if location and not taking and partition.epoch >= 0 else None
    wire = Receiving(options.target, taking, ordered=journal is not None)
    maker = _maker(options)
    wire.namespace = options["namespaceName"] or wire.namespace
    latest = options["enqueuedBefore"]
    report: dict[str, Any] = {"read": {}, "operations": []}
    for grant in partition.grants:
        queue = grant.queue
        left, room, count, size, steps = grant.messages, grant.size, 0, 0, 0
        more, done, lock, oldest = True, False, None, None
        page = None
        if journal is not None:
            if not _take_over(journal, wire, partition.epoch, queue):
                report["read"][queue] = {**_NOTHING, "more": True}
                continue
            page = journal.page(partition.epoch, queue)
        while left > 0 and room > 0 and not done and not (state and state.halted):
            if page is not None and not page.ask():
                raise RuntimeError(f"servicebus: {queue}: another attempt has taken over")
            got = wire.receive(queue, min(left, options["arrowBatchSize"]), room)
            if not got:
                more = False
                if page is not None and not wire.broke_off:
                    page.note([])
                # A snapshot has all of a queue that is empty, but not of one that is away.
                done = latest is not None and not wire.failed
                break
            now = time.time_ns() // 1000
            if page is not None:
                newest = open_message(got[-1][1], aliases=False).sequence_number or 0
                tokens = [token for token, _ in got if token is not None]
                page.note(tokens, newest, all_of_them=not wire.broke_off)
            opened = [open_message(payload, aliases=options["aliases"]) for _, payload in got]
            if latest is not None:
                keep = sum((o.enqueued_time or 0) <= latest for o in opened)
                if keep < len(got):
                    later = [t for t, _ in reversed(got[keep:]) if t is not None]
                    if not wire.give_back(queue, later) and page is not None:
                        page.ask()  # they stay locked for a while: a doubt
                    got, opened, done = got[:keep], opened[:keep], True
            if not got:
                break
            oldest = opened[0].enqueued_time or oldest
            if lock is None and opened[0].locked_until is not None:
                lock = opened[0].locked_until / 1000 - now / 1e6
            used = [len(payload) for _, payload in got]
            count += len(got)
            size += sum(used)
            steps += sum([billable(n) for n in used]) if max(used) > BILLING_STEP else len(used)
            left -= len(got)
            room -= sum(used)
            yield maker.batch_of(queue, now, got, opened)
            if wire.broke_off:
                more = False  # the doorbell finds out when it is back
                break
        if page is not None:
            page.close()
        report["read"][queue] = {
            "messages": count, "bytes": size, "more": more and not done, "done": done, "lock": lock,
            "oldest": oldest,
        }  # fmt: skip
        if count:
            row = [wire.namespace, "receive_backlog", queue, "receive", 1, count, size, steps]
            report["operations"].append(row)
        if not more:  # the last grant of credit ended empty, and is charged all the same
            row = [wire.namespace, "idle_poll", queue, "receive", 1, 0, 0, 1]
            report["operations"].append(row)
    if state is not None:
        state.report(report)


_NOTHING: dict[str, Any] = {
    "messages": 0, "bytes": 0, "more": False, "done": False, "lock": None, "oldest": None
}  # fmt: skip


def _take_over(journal: Journal, wire: "Receiving", epoch: int, queue: str) -> bool:
    """Give back what earlier attempts noted; False if they may have got more, or it cannot be."""
    pages = journal.take_over(epoch, queue)
    if any(page.is_open for page in pages):
        return False
    for page in pages:
        tokens = page.tokens
        tokens.reverse()
        if tokens and not wire.give_back(queue, tokens):
            return False
        page.given_back()
    return True
