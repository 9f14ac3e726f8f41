"""State that Spark's Python workers keep between tasks, and the syphon's parts that run in them.

A module that is imported (not pickled) keeps its state while the worker lives. Nothing here imports
azure-servicebus: a worker needs only pyspark and pyarrow.
"""

import gc
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pairbus.runtime import ThreadRuntime
from pairbus.spark.options import ConnectorOptions
from pairbus.syphon._sync.answers import FenceAnswers
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.deliverer import Deliverer
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon._sync.reader import BacklogReader
from pairbus.syphon._sync.receiving import Browser, QueueReceiver
from pairbus.syphon.delivery_settings import DeliverySettings
from pairbus.syphon.object_journal import open_journal
from pairbus.syphon.records import BlockedRecord
from pairbus.syphon.retarget import Route, TargetRecord
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.ledger.receipt_index import Key, ReceiptIndex

__all__ = ["connections", "open_browser", "open_deliverer", "open_reader", "runtime"]

runtime = ThreadRuntime()
_pool = ConnectionPool(runtime)
_tuned: set[int] = set()
_receipt_indexes: "dict[tuple[str, float], ReceiptIndex]" = {}


def connections(target: Target, role: str, *, timeout: float = 30.0) -> NamespaceConnections:
    """Return this process's connection to a namespace in one role."""
    return NamespaceConnections(_pool, target, role, timeout=timeout)


def open_browser(options: ConnectorOptions, role: str) -> Browser:
    """Return a browser of the namespace that is read."""
    return Browser(connections(options.target, role))


def open_reader(options: ConnectorOptions, *, is_stream: bool) -> BacklogReader:
    """Return a reader for one task.

    Args:
        options: of the source.
        is_stream: a stream may be replayed, so its locks are recorded in the journal.
    """
    _tune_garbage_collector()
    deletes = options["mode"] == "receiveAndDelete"
    location = options["stateLocation"]
    journal = open_journal(location, runtime) if location and is_stream and not deletes else None
    link = connections(options.target, "reader")
    return BacklogReader(
        runtime,
        QueueReceiver(link, deletes=deletes, is_ordered=journal is not None),
        BacklogQueues(runtime, link),
        namespace=options["namespaceName"] or options.target.namespace,
        state=StateDirectory(location, runtime) if location else None,
        journal=journal,
        batch_size=options["arrowBatchSize"],
        aliases=options["aliases"],
        enqueued_before=options["enqueuedBefore"],
    )


def open_deliverer(options: ConnectorOptions) -> Deliverer:
    """Return a deliverer for one task."""
    _tune_garbage_collector()
    location = options["stateLocation"]
    state = StateDirectory(location, runtime) if location else None
    ledger, client = options["ledger"], options["clientId"]
    receipts: Callable[[pa.Table], None] | None = None
    probe: Callable[[], str | None] = lambda: None  # noqa: E731 - replaced where there is a ledger
    if ledger:
        from pairbus.ledger import receipts as ledger_receipts

        receipts = partial(ledger_receipts.write_receipts, ledger, client_id=client)
        probe = partial(ledger_receipts.probe, ledger)

    route, find_receipts = _route(options, state)
    settle_target = options.settle_target
    timeout = options["sendTimeout"]
    return Deliverer(
        runtime,
        Destinations(connections(options.target, "writer", timeout=timeout), timeout),
        BacklogQueues(runtime, connections(settle_target, "settler")) if settle_target else None,
        receipts,
        state.report if state else lambda _report: None,
        DeliverySettings(
            destination=options.destination(),
            blocked=state.blocked() if state else BlockedRecord(),
            waits_for_missing=state is not None and options["missingDestination"] == "wait",
            max_bytes=options["maxBatchBytes"],
            primary=options["namespaceName"] or options.target.namespace,
            secondary=options["settleNamespaceName"] or (settle_target or options.target).namespace,
            route=route,
        ),
        probe=probe,
        is_stopping=(lambda: state.is_stopping) if state else bool,
        find_receipts=find_receipts,
        answering=FenceAnswers(runtime, connections(settle_target, "settler"), client)
        if settle_target
        else None,
    )


def _route(
    options: ConnectorOptions, state: StateDirectory | None
) -> "tuple[Route, Callable[[list[Key]], set[Key]] | None]":
    """Return the route of messages, and a function that finds receipts if the target changed."""
    record = state.target() if state else TargetRecord()
    route = Route(
        namespace=options["target"] or "",
        destinations=options["destinationMap"] or {},
        former=record.former,
        handed_out=record.handed_out,
    )
    ledger = options["ledger"]
    if not record.former or not ledger:
        return route, None
    if (ledger, record.changed_at) not in _receipt_indexes:
        from pairbus.ledger.receipt_index import ReceiptIndex
        from pairbus.ledger.store import Store

        index = ReceiptIndex(Store(ledger), record.lowest)
        _receipt_indexes[ledger, record.changed_at] = index
    return route, _receipt_indexes[ledger, record.changed_at].find


def _tune_garbage_collector() -> None:
    """Once in a process: exempt the objects that exist from garbage collection.

    A task makes and drops many thousand small objects; with the default threshold the collector
    scans all modules again and again, which takes a tenth of a task's time.
    """
    if os.getpid() not in _tuned:
        _tuned.add(os.getpid())
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
