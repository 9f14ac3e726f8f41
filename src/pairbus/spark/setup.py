"""Where a syphon goes and what it needs: names, places, options of source and sink.

Everything that can be wrong before Spark starts is found here, in one line each.
"""

import getpass
import hashlib
import importlib
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairbus.exceptions import SyphonError
from pairbus.names import (
    backlog_paths,
    is_connection_string,
    namespace_from_host,
    namespace_or_host,
    parse_connection_string,
)
from pairbus.options import SyphonOptions
from pairbus.spark.options import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Bounds", "Setup", "default_checkpoint"]

# What the syphon needs of a message; a transform gets all columns.
_COLUMNS = (
    "entity,sequenceNumber,enqueuedTime,lockToken,lockedUntil,receivedTime,size,messageId,message"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """When a drain ends by itself.

    Args:
        until_empty: when the backlog queues are empty.
        max_messages: when this many messages were read.
        snapshot: when what was there at the start was forwarded.
        max_duration: after so many seconds.
    """

    until_empty: bool = False
    max_messages: int | None = None
    snapshot: bool = False
    max_duration: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether it ends by itself."""
        return bool(
            self.until_empty or self.max_messages or self.snapshot or self.max_duration is not None
        )


@dataclass(frozen=True)
class Setup:
    """A syphon's places and names, all known."""

    primary: Target
    secondary: Target
    primary_host: str
    secondary_host: str
    queues: tuple[str, ...]
    checkpoint: Path
    ledger: str | None
    client_id: str
    ttl_policy: str
    long_poll: float
    transform: "Callable[[DataFrame], DataFrame] | None"
    per_trigger: int
    retry_after: float

    @classmethod
    def of(cls, options: SyphonOptions) -> "Setup":
        """Work out everything, or say in one line what is missing.

        Raises:
            SyphonError: what is wrong.
        """
        primary, primary_host = _endpoint("primary", options.primary, options.primary_host)
        secondary, secondary_host = _endpoint(
            "secondary", options.secondary, options.secondary_host
        )
        if options.ca_file:
            trusted = str(Path(options.ca_file).expanduser().absolute())
            if not Path(trusted).is_file():
                raise SyphonError(f"ca_file: there is no file {trusted}")
            primary, secondary = (replace(t, ca_file=trusted) for t in (primary, secondary))
        if primary_host.lower() == secondary_host.lower():
            raise SyphonError(f"primary and secondary are the same namespace: {primary_host}")
        name = options.primary_namespace or namespace_from_host(primary_host)
        if name is None:
            raise SyphonError(
                f"the primary's host {primary_host} is an address: name it with primary_namespace"
            )
        queues = tuple(backlog_paths(name, options.backlog_queue_count))
        place = options.checkpoint or default_checkpoint(name, secondary_host)
        checkpoint = Path(place).expanduser().absolute()
        try:
            checkpoint.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            raise SyphonError(f"checkpoint {checkpoint}: {exc.strerror}") from None
        transform = options.transform
        return cls(
            primary=primary,
            secondary=secondary,
            primary_host=primary_host,
            secondary_host=secondary_host,
            queues=queues,
            checkpoint=checkpoint,
            ledger=str(Path(options.ledger).absolute())
            if options.ledger and "://" not in options.ledger
            else options.ledger,
            client_id=_client_id(checkpoint),
            ttl_policy=options.ttl_policy,
            long_poll=options.long_poll,
            transform=_load(transform) if isinstance(transform, str) else transform,
            per_trigger=options.max_messages_per_trigger,
            retry_after=options.retry_after,
        )

    @property
    def primary_name(self) -> str:
        """The primary's name, as in the paths of the backlog queues."""
        return self.queues[0].partition("/")[0]

    @property
    def secondary_name(self) -> str:
        """The secondary's name: the first label of its host, or the host where it is an address."""
        return namespace_or_host(self.secondary_host)

    def source_options(self, bounds: Bounds, *, partitions: int, now: float) -> dict[str, str]:
        """Options of the source over all backlog queues."""
        options = {
            **_target_options(self.secondary, ""),
            "queue": ",".join(self.queues),
            "mode": "peekLock",
            "aliases": "true",
            "columns": "all" if self.transform else _COLUMNS,
            "stateLocation": str(self.checkpoint),
            "longPoll": str(self.long_poll),
            "maxPartitions": str(partitions),
            "maxMessagesPerTrigger": str(self.per_trigger),
            "clientId": self.client_id,
            "namespaceName": self.secondary_name,
            "retryAfter": str(self.retry_after),
            "untilEmpty": "true" if bounds.until_empty else "false",
        }
        if bounds.max_messages:
            options["maxMessages"] = str(bounds.max_messages)
        if bounds.snapshot:
            options["enqueuedBefore"] = str(int(now * 1000))
        if self.ledger:
            options["ledger"] = self.ledger
        return options

    def sink_options(self) -> dict[str, str]:
        """Options of the sink: send to the primary, settle in the secondary."""
        options = {
            **_target_options(self.primary, ""),
            **_target_options(self.secondary, "settle"),
            "settle": "true",
            "stateLocation": str(self.checkpoint),
            "clientId": self.client_id,
            "namespaceName": self.primary_name,
            "settleNamespaceName": self.secondary_name,
        }
        if self.ledger:
            options["ledger"] = self.ledger
        return options

    def peek_options(self) -> dict[str, str]:
        """Options of a source that only looks, for a dry run."""
        return {
            **_target_options(self.secondary, ""),
            "queue": ",".join(self.queues),
            "mode": "peek",
            "aliases": "true",
            "columns": "all" if self.transform else _COLUMNS,
        }


def _endpoint(role: str, value: str, host: str | None) -> tuple[Target, str]:
    """A connection string, the name of a variable that holds one, or a credential factory."""
    value = value.strip()
    if is_connection_string(value):
        return Target(reference=value), _host_of(role, value)
    if _VARIABLE.match(value):
        text = os.environ.get(value, "").strip()
        if not text:
            raise SyphonError(f"{role}: the environment variable {value} is not set")
        # The value itself goes on to the workers, whose environment may be another; Spark redacts
        # it, and a signature, which it would not, is looked up there.
        if "sharedaccesssignature=" in text.lower():
            return Target(reference=f"env:{value}"), _host_of(role, text)
        return Target(reference=text), _host_of(role, text)
    if ":" in value:
        if not host:
            raise SyphonError(f"{role}_host is needed with a credential factory")
        return Target(host=host, credential=value), host
    raise SyphonError(
        f"{role}: neither a connection string, nor a variable's name, nor module:factory"
    )


def _host_of(role: str, text: str) -> str:
    try:
        return parse_connection_string(text).authority
    except ValueError as exc:
        raise SyphonError(f"{role}: {exc}") from None


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


def default_checkpoint(name: str, secondary_host: str) -> str:
    """A place that a restart finds again: by the pair, in the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    if not os.access(Path(base).parent.parent if not Path(base).exists() else base, os.W_OK):
        base = str(Path(tempfile.gettempdir()) / f"pairbus-{getpass.getuser()}")
    digest = hashlib.sha256(secondary_host.lower().encode()).hexdigest()[:8]
    return str(Path(base) / "pairbus" / f"syphon-{name}-{digest}")


def _client_id(checkpoint: Path) -> str:
    return "syphon-" + hashlib.sha256(str(checkpoint).encode()).hexdigest()[:8]


def _load(name: str) -> Any:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as exc:
        raise SyphonError(
            f"transform {name!r} cannot be imported as package.module:function ({exc})"
        ) from None
    if not callable(found):
        raise SyphonError(f"transform {name!r} is not a function")
    return found
