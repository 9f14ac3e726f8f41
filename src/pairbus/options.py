"""The options of a pair and of the syphon: frozen, keyword-only, and checked when they are made.

Times are seconds, as floats, or `datetime.timedelta`; they are kept as floats. To change an
option, use `dataclasses.replace`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
    from azure.servicebus.aio.management import (
        ServiceBusAdministrationClient as AsyncServiceBusAdministrationClient,
    )
    from azure.servicebus.management import ServiceBusAdministrationClient

    from pairbus.classify import Verdict
    from pairbus.events import Event

Seconds: TypeAlias = "float | timedelta"
Oversize: TypeAlias = Literal["warn", "refuse", "ignore"]
TtlPolicy: TypeAlias = Literal["full", "deduct"]
Recovery: TypeAlias = Literal["direct", "drain_first"]
MissingDestination: TypeAlias = Literal["wait", "dead-letter"]
Observer: TypeAlias = "Callable[[Event], None]"
Classify: TypeAlias = "Callable[[BaseException], Verdict | None]"

__all__ = ["SendAvailabilityPairedNamespaceOptions", "SyphonOptions"]


def _seconds(owner: object, name: str, low: float, high: float) -> None:
    """Turn the time option `name` of `owner` into a float, and check that it is in range."""
    value = getattr(owner, name)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{name} must be seconds or a timedelta, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be {low:g} to {high:g} seconds, got {value:g}")
    object.__setattr__(owner, name, float(value))


def _count(owner: object, name: str, low: int) -> None:
    """Check that the option `name` of `owner` is a whole number of at least `low`."""
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name} must be a whole number >= {low}, got {value!r}")


def _choice(owner: object, name: str, choices: tuple[str, ...]) -> None:
    """Check that the option `name` of `owner` is one of `choices`."""
    value = getattr(owner, name)
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_namespace_name(name: str) -> str:
    """Return `name`, lower-cased, if it can name a primary namespace in a backlog path."""
    if not name or set("/=;") & set(name) or name != name.strip() or len(name) > 200:
        # A connection string given by mistake is not shown: it holds a key.
        shown = "a connection string" if "=" in name else repr(name)
        raise ValueError(f"primary_namespace must be a name such as 'contoso', got {shown}")
    return name.lower()


def _namespace(owner: SyphonOptions | SendAvailabilityPairedNamespaceOptions) -> None:
    """Check the option `primary_namespace` of `owner`, if it is set, and lower-case it."""
    if owner.primary_namespace is not None:
        name = check_namespace_name(owner.primary_namespace)
        object.__setattr__(owner, "primary_namespace", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonOptions:
    """How the syphon reaches the two namespaces, and how it runs.

    The syphon runs in other processes and cannot borrow the application's clients: `primary` and
    `secondary` are connection strings, names of environment variables that hold them, or
    importable factories of a token credential (`"package.module:factory"`, together with the
    `..._host` options).

    Args:
        primary: Where messages go: connection string, variable name or credential factory. It may
            be empty with `target` and `primary_namespace`.
        secondary: Where the backlog queues are; the same three forms.
        primary_host: Fully qualified namespace of the primary, if `primary` is a factory.
        secondary_host: Fully qualified namespace of the secondary, if `secondary` is a factory.
        ca_file: PEM file of the certificate authorities to trust instead of the system's.
        primary_namespace: The primary's name in the backlog paths; the first label of its host
            name if left out.
        backlog_queue_count: How many backlog queues there are.
        master: Spark master; `local[*]` if left out.
        checkpoint: Directory for Spark's checkpoint, and for the state if `state` is left out.
        state: Directory or object store URL for the syphon's journal, controls and reports; the
            directory `checkpoint` if left out.
        ledger: Directory or URL of the ledger; no ledger if left out.
        ttl_policy: `"full"` restores the time to live as it was; `"deduct"` subtracts the time
            that the message spent in the backlog.
        long_poll: How long an idle syphon waits in one receive, in seconds.
        max_messages_per_second: Upper bound on the drain; none if left out.
        max_bytes_per_second: Upper bound on the drain; none if left out.
        max_messages_per_trigger: Maximum number of messages of one backlog queue in a micro-batch.
        credits_per_second: Operations a second that each namespace allows, 1,000 on the Standard
            tier; None for no ceiling (Premium). The drain adapts to server-busy answers below it.
        live_traffic_share: Share of `credits_per_second` that is left free for live traffic, 0 to
            below 1; a third if left out.
        retry_after: First wait for a destination that cannot take messages, in seconds; it
            doubles up to five minutes.
        missing_destination: What to do with a message whose destination does not exist: `"wait"`
            for it, or `"dead-letter"` it immediately.
        missing_destination_timeout: How long to wait for such a destination, from the first
            refusal, in seconds; a day if left out. Then its messages are dead-lettered.
        transform: `"package.module:function"`, or a function: from DataFrame to DataFrame, between
            restore and deliver.
        target: Namespace to deliver to instead of the primary, if the primary is permanently lost:
            the three forms of `primary`. It may be the secondary. Needs a ledger.
        target_host: Fully qualified namespace of the target, if `target` is a factory.
        destination_map: Changed names of destinations in the target: a message for a key is
            delivered to the entity that is its value.
    """

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    primary_host: str | None = None
    secondary_host: str | None = None
    ca_file: str | None = None
    primary_namespace: str | None = None
    backlog_queue_count: int = 10
    master: str | None = None
    # URLs of object stores may contain a key.
    checkpoint: str | None = field(default=None, repr=False)
    state: str | None = field(default=None, repr=False)
    ledger: str | None = field(default=None, repr=False)
    ttl_policy: TtlPolicy = "full"
    long_poll: float = 900.0
    max_messages_per_second: float | None = None
    max_bytes_per_second: float | None = None
    max_messages_per_trigger: int = 20_000
    credits_per_second: float | None = 1000.0
    live_traffic_share: float = 1 / 3
    retry_after: float = 10.0
    missing_destination: MissingDestination = "wait"
    missing_destination_timeout: float = 86400.0
    transform: str | Callable[..., Any] | None = None
    target: str | None = field(default=None, repr=False)
    target_host: str | None = None
    destination_map: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _count(self, "max_messages_per_trigger", 1)
        if self.target is not None and self.ledger is None:
            raise ValueError("target needs a ledger: messages with a receipt are not sent again")
        for old, new in self.destination_map.items():
            if not old.strip() or not new.strip():
                raise ValueError(f"destination_map must name two entities, got {old!r}={new!r}")
        for name in ("primary", "secondary", "target"):
            value = getattr(self, name)
            if name == "target" and value is None:
                continue
            if name == "primary" and value == "" and self.target and self.primary_namespace:
                continue  # the primary is lost, and only its name is needed
            if not isinstance(value, str) or not value.strip():
                # The value is not shown: it may be a connection string with a key in it.
                raise ValueError(
                    f"{name} must be a connection string, the name of an environment variable "
                    "that holds one, or module:factory of a credential"
                )
        _namespace(self)
        _count(self, "backlog_queue_count", 1)
        _choice(self, "ttl_policy", ("full", "deduct"))
        _seconds(self, "long_poll", 0.1, 3600)
        _seconds(self, "retry_after", 0.1, 300)
        _choice(self, "missing_destination", ("wait", "dead-letter"))
        _seconds(self, "missing_destination_timeout", 0, 30 * 86400)
        for name in ("checkpoint", "state", "ledger", "ca_file"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, os.fspath(getattr(self, name)))
        if not 0 <= self.live_traffic_share < 1:
            raise ValueError(
                f"live_traffic_share must be 0 to below 1, got {self.live_traffic_share!r}"
            )
        for name in ("max_messages_per_second", "max_bytes_per_second", "credits_per_second"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be greater than 0, and finite, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAvailabilityPairedNamespaceOptions:
    """The secondary namespace and the settings of a pair, for `pair_namespace`.

    Args:
        secondary: Client for the secondary namespace, sync or aio as the primary is.
        secondary_admin: Administration client for the secondary: it creates the backlog queues, and
            needs the right Manage. Without it the queues are expected to exist.
        require_secondary: Whether `pair_namespace` waits for the secondary, up to 30 seconds, and
            raises if no backlog queue can be used. Otherwise it waits a second and returns a
            client that is unprotected until the secondary can be used.
        backlog_queue_count: How many backlog queues, at least 1.
        failover_interval: How long a primary entity may fail before its sends go to the backlog,
            0 to 3600 seconds. With 0 the failed call itself is redirected.
        ping_primary_interval: How often a failed-over entity is pinged, 1 to 1800 seconds.
        enable_syphon: Run the syphon in this process; needs `syphon` and the extra `spark`.
        primary_namespace: The primary's name in backlog paths. Needed only if its host is an IP
            address or `localhost`; otherwise it is the first label of the host name.
        send_timeout: Deadline of a send to either namespace, retries included, in seconds.
        open_timeout: How long opening a link may take, within `send_timeout`, in seconds.
        reopen: Whether a send over an open link that breaks is repeated once over a new link, with
            the same message id, before the failure counts. With False the failure counts
            immediately, as in the SDK with `retry_total=0`.
        coalesce: Whether single messages with equal session id and partition key that wait for the
            same sender are sent as one list. With False each message is sent alone.
        classify: A function of the application that takes an exception and returns a
            `pairbus.classify.Verdict`, or None to let pairbus decide. If it raises, the exception
            is logged and pairbus decides.
        oversize: What to do, while healthy, with a message that would not fit a backlog queue:
            `"warn"`, `"refuse"` or `"ignore"`.
        ttl_policy: `"full"` or `"deduct"`; see `SyphonOptions.ttl_policy`.
        recovery: `"direct"`: sends go to the primary as soon as it is back. `"drain_first"`: they
            go to the backlog until the syphon has delivered it, so that no message overtakes
            an older one; needs the right Listen on the reply queue in the secondary.
        backlog_cooldown: How long a failing backlog queue stays out of the rotation, in seconds.
        ledger: Directory or URL of the ledger and the status files; none if left out. Needs the
            extra `ledger`.
        observers: Functions that are called with each event; their exceptions are logged.
        syphon: How the syphon reaches the namespaces; needed by `enable_syphon`.
    """

    secondary: ServiceBusClient | AsyncServiceBusClient = field(repr=False)
    secondary_admin: ServiceBusAdministrationClient | AsyncServiceBusAdministrationClient | None = (
        field(default=None, repr=False)
    )
    require_secondary: bool = False
    backlog_queue_count: int = 10
    failover_interval: Seconds = 60.0
    ping_primary_interval: Seconds = 60.0
    enable_syphon: bool = False
    primary_namespace: str | None = None
    send_timeout: Seconds = 30.0
    open_timeout: Seconds = 5.0
    reopen: bool = True
    coalesce: bool = True
    classify: Classify | None = None
    oversize: Oversize = "warn"
    ttl_policy: TtlPolicy = "full"
    recovery: Recovery = "direct"
    backlog_cooldown: Seconds = 60.0
    ledger: str | os.PathLike[str] | None = field(default=None, repr=False)  # a URL may have a key
    observers: Sequence[Observer] = ()
    syphon: SyphonOptions | None = None

    def __post_init__(self) -> None:
        _count(self, "backlog_queue_count", 1)
        _seconds(self, "failover_interval", 0, 3600)
        _seconds(self, "ping_primary_interval", 1, 1800)
        _seconds(self, "send_timeout", 0.05, 3600)
        _seconds(self, "open_timeout", 0.05, 3600)
        _seconds(self, "backlog_cooldown", 0, 86400)
        _choice(self, "oversize", ("warn", "refuse", "ignore"))
        _choice(self, "ttl_policy", ("full", "deduct"))
        _choice(self, "recovery", ("direct", "drain_first"))
        _namespace(self)
        if self.classify is not None and not callable(self.classify):
            raise ValueError("classify must be callable")
        if callable(self.observers):
            raise ValueError("observers must be a list of functions, got one function")
        object.__setattr__(self, "observers", tuple(self.observers))
        if not all(callable(observer) for observer in self.observers):
            raise ValueError("every observer must be callable")
        if self.ledger is not None:
            object.__setattr__(self, "ledger", os.fspath(self.ledger))
        if self.enable_syphon and self.syphon is None:
            raise ValueError(
                "enable_syphon needs syphon=SyphonOptions(primary=..., secondary=...): the syphon "
                "runs in processes of its own and cannot borrow the application's clients"
            )
