"""Put a keeper together: its connections, its doorbell, its ledger."""

from collections.abc import Callable
from typing import Any

from pairbus.spark.options import ConnectorOptions
from pairbus.syphon.backoff import Backoff
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.coordinator import Keeper
from pairbus.syphon.doorbell import Doorbell
from pairbus.syphon.held import WaitingRoom
from pairbus.syphon.wire import BacklogSide, namespace_of

__all__ = ["open_keeper"]


def open_keeper(options: ConnectorOptions) -> Keeper:
    """A keeper for the stream with these options."""
    location = options["stateLocation"]
    if location is None:  # receive and delete: nothing to keep but the doorbell
        import tempfile

        location = tempfile.mkdtemp(prefix="pairbus-")
    ledger = options["ledger"]
    count: Callable[..., None] = lambda *_row: None  # noqa: E731 - replaced where there is a ledger
    flush: Callable[[], bool] = lambda: True  # noqa: E731
    probe: Callable[[], str | None] = lambda: None  # noqa: E731
    if ledger:
        from pairbus.ledger import receipts
        from pairbus.ledger.writer import LedgerWriter

        writer = LedgerWriter(ledger, client_id=options["clientId"])
        flush = writer.flush

        def count(*row: Any) -> None:
            namespace, stage, entity, operation, calls, messages, size, billable = row
            writer.count(
                namespace, entity, stage, operation,
                messages=messages, size=size, billable=billable, calls=calls,
            )  # fmt: skip

        def probe() -> str | None:
            return receipts.probe(ledger)

    problems: dict[str, str | None] = {"secondary": None}

    def problem(text: str | None) -> None:
        problems["secondary"] = text

    bounded = options["enqueuedBefore"] is not None
    bell = Doorbell(options.target, options["longPoll"], problem=problem)
    return Keeper(
        options.entities(),
        StateDir(location),
        BacklogSide(options.target),
        bell,
        count=count,
        namespace=options["namespaceName"] or namespace_of(options.target),
        room=WaitingRoom(destination=Backoff(first=options["retryAfter"])),
        flush=flush,
        probe_ledger=probe,
        connection_problem=lambda: problems["secondary"],
        per_queue=options["maxMessagesPerTrigger"],
        bytes_per_queue=options["maxBytesPerTrigger"],
        max_messages=options["maxMessages"],
        until_empty=options["untilEmpty"],
        warm=options.entities() if bounded else (),
    )
