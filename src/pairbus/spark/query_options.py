"""The options of source and sink with which the syphon's query runs."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pairbus.exceptions import SyphonError
from pairbus.syphon.setup import Bounds, Setup
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
    options = {
        **_target_options(setup.secondary, ""),
        "queue": ",".join(setup.queues),
        "mode": "peekLock",
        "aliases": "true",
        "columns": "all" if setup.options.transform else _COLUMNS,
        "stateLocation": setup.state,
        "longPoll": str(setup.options.long_poll),
        "maxPartitions": str(partitions),
        "maxMessagesPerTrigger": str(setup.options.max_messages_per_trigger),
        "clientId": setup.client_id,
        "namespaceName": setup.secondary_name,
        "retryAfter": str(setup.options.retry_after),
        "untilEmpty": "true" if bounds.until_empty else "false",
        "missingDestinationTimeout": str(setup.options.missing_destination_timeout),
    }
    if setup.ready:
        options["readyQueues"] = ",".join(setup.ready)
    if setup.options.credits_per_second is not None:
        options["creditsPerSecond"] = str(setup.options.credits_per_second)
        options["liveTrafficShare"] = str(setup.options.live_traffic_share)
    if bounds.max_messages:
        options["maxMessages"] = str(bounds.max_messages)
    if bounds.snapshot:
        options["enqueuedBefore"] = str(int(now * 1000))
    if setup.ledger:
        options["ledger"] = setup.ledger
    return options


def sink_options(setup: Setup) -> dict[str, str]:
    """Return the options of the sink: send to the target, settle in the secondary."""
    options = {
        **_target_options(setup.target, ""),
        **_target_options(setup.secondary, "settle"),
        "settle": "true",
        "missingDestination": "wait"
        if setup.options.missing_destination == "wait"
        else "deadLetter",
        "stateLocation": setup.state,
        "clientId": setup.client_id,
        "namespaceName": setup.target_name,
        "settleNamespaceName": setup.secondary_name,
    }
    if setup.options.destination_map:
        pairs = [f"{old}={new}" for old, new in setup.options.destination_map.items()]
        options["destinationMap"] = ",".join(pairs)
    if setup.is_retargeted:
        options["target"] = setup.target_name
    if setup.ledger:
        options["ledger"] = setup.ledger
    return options


def peek_options(setup: Setup) -> dict[str, str]:
    """Return the options of a source that only browses, for a dry run."""
    return {
        **_target_options(setup.secondary, ""),
        "queue": ",".join(setup.queues),
        "mode": "peek",
        "aliases": "true",
        "columns": "all" if setup.options.transform else _COLUMNS,
    }


def _target_options(target: Target, prefix: str) -> dict[str, str]:
    def name(base: str) -> str:
        return prefix + base[0].upper() + base[1:] if prefix else base

    trusted = {name("caFile"): target.ca_file} if target.ca_file else {}
    if target.reference:
        return {name("connectionString"): target.reference, **trusted}
    return {
        name("fullyQualifiedNamespace"): target.host,
        name("credential"): target.credential,
        **trusted,
    }


def load_transform(setup: Setup) -> "Callable[[DataFrame], DataFrame] | None":
    """Return the user's transform; one that is given by name is imported.

    Raises:
        SyphonError: it cannot be imported, or is no function.
    """
    name = setup.options.transform
    if not isinstance(name, str):
        return name
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as exc:  # the module may raise anything, a SyntaxError included
        raise SyphonError(
            f"transform {name!r} cannot be imported as package.module:function ({_one_line(exc)})"
        ) from exc
    if not callable(found):
        raise SyphonError(f"transform {name!r} is not a function")
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
