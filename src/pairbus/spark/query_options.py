"""The options of source and sink with which the syphon's query runs."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pairbus.exceptions import SyphonError
from pairbus.spark.options import option_name
from pairbus.syphon.setup import Bounds, Setup, SetupError
from pairbus.syphon.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["apply_transform", "load_transform", "peek_options", "sink_options", "source_options"]

# A transform must keep these columns: message, destination, and those needed to settle it.
_NEEDED = {"entity", "lockToken", "message", "destination", "verdict"}

# The columns that the syphon itself needs; a transform gets all columns.
_COLUMNS = (
    "entity,sequenceNumber,enqueuedTime,lockToken,lockedUntil,receivedTime,deliveryCount,size,"
    "messageId,message"
)


def source_options(setup: Setup, bounds: Bounds, *, partitions: int, now: float) -> dict[str, str]:
    """Return the options of the source over all backlog queues."""
    options = setup.options
    is_limited = options.credits_per_second is not None
    return {
        **_backlog_options(setup),
        **_texts(
            mode="peekLock",
            stateLocation=setup.state,
            longPoll=options.long_poll,
            maxPartitions=partitions,
            maxMessagesPerTrigger=options.max_messages_per_trigger,
            clientId=setup.client_id,
            namespaceName=setup.secondary_name,
            retryAfter=options.retry_after,
            untilEmpty="true" if bounds.until_empty else "false",
            missingDestinationTimeout=options.missing_destination_timeout,
            readyQueues=",".join(setup.ready),
            creditsPerSecond=options.credits_per_second,
            liveTrafficShare=options.live_traffic_share if is_limited else None,
            maxMessages=bounds.max_messages or None,
            enqueuedBefore=int(now * 1000) if bounds.snapshot else None,
            ledger=setup.ledger,
        ),
    }


def sink_options(setup: Setup) -> dict[str, str]:
    """Return the options of the sink: send to the target, settle in the secondary."""
    waits = setup.options.missing_destination == "wait"
    pairs = setup.options.destination_map.items()
    return {
        **_target_options(setup.target, ""),
        **_target_options(setup.secondary, "settle"),
        **_texts(
            settle="true",
            missingDestination="wait" if waits else "deadLetter",
            stateLocation=setup.state,
            clientId=setup.client_id,
            namespaceName=setup.target_name,
            settleNamespaceName=setup.secondary_name,
            destinationMap=",".join(f"{old}={new}" for old, new in pairs),
            target=setup.target_name if setup.is_retargeted else None,
            ledger=setup.ledger,
        ),
    }


def peek_options(setup: Setup) -> dict[str, str]:
    """Return the options of a source that only browses, for a dry run."""
    return {**_backlog_options(setup), "mode": "peek"}


def _backlog_options(setup: Setup) -> dict[str, str]:
    return {
        **_target_options(setup.secondary, ""),
        "queue": ",".join(setup.queues),
        "aliases": "true",
        "columns": "all" if setup.options.transform else _COLUMNS,
    }


def _target_options(target: Target, prefix: str) -> dict[str, str]:
    options = _texts(
        connectionString=target.reference,
        fullyQualifiedNamespace="" if target.reference else target.host,
        credential="" if target.reference else target.credential,
        caFile=target.ca_file,
    )
    return {option_name(prefix, base): value for base, value in options.items()}


def _texts(**values: Any) -> dict[str, str]:
    """Return the values that are given, as text."""
    return {name: str(value) for name, value in values.items() if value not in (None, "")}


def load_transform(setup: Setup) -> "Callable[[DataFrame], DataFrame] | None":
    """Return the user's transform; one that is given by name is imported.

    Raises:
        SetupError: it cannot be imported, or is no function.
    """
    name = setup.options.transform
    if not isinstance(name, str):
        return name
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as exc:  # the module may raise anything, a SyntaxError included
        raise SetupError(
            f"transform {name!r} cannot be imported as package.module:function ({_one_line(exc)})"
        ) from exc
    if not callable(found):
        raise SetupError(f"transform {name!r} is not a function")
    transform: Callable[[DataFrame], DataFrame] = found
    return transform


def apply_transform(
    transform: "Callable[[DataFrame], DataFrame]", messages: "DataFrame"
) -> "DataFrame":
    """Return the messages as the user's transform changes them.

    Raises:
        SyphonError: it raised an error, returned no DataFrame, or removed a column that is needed.
    """
    name = getattr(transform, "__name__", repr(transform))
    try:
        changed = transform(messages)
        columns = set(changed.columns)
    except Exception as exc:
        raise SyphonError(f"the transform {name} failed: {_one_line(exc)}") from exc
    removed = sorted(_NEEDED & set(messages.columns) - columns)
    if removed:
        raise SyphonError(
            f"the transform {name} removed the column(s) {', '.join(removed)}: keep them"
        )
    return changed


def _one_line(exc: Exception) -> str:
    text = str(exc).strip().split("\n")[0]
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
