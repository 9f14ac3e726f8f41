"""The settings of a broker: name, address, key, store, tier and limits."""

from __future__ import annotations

import enum
import ipaddress
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pairbus.amqp.frames import MIN_MAX_FRAME_SIZE
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model_limits import check_name
from pairbus.names import format_connection_string, join_host

DEFAULT_KEY_NAME = "RootManageSharedAccessKey"
#: The official emulator's key, which is public: accepted on loopback addresses only.
WELL_KNOWN_KEY = "SAS_KEY_VALUE"
DURABILITIES = ("normal", "full")
STANDARD_CREDITS = 1000  # per second and namespace
IDLE_LINK_TIMEOUT = 600.0
IDLE_CONNECTION_TIMEOUT = 60.0
TIER_VARIABLE = "PAIRBUS_BROKER_TIER"
"""The environment variable with the tier of brokers that are started without one."""


class BrokerStartError(Exception):
    """The broker cannot start; the text is one line for its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that keep one client from exhausting the broker.

    Attributes:
        connections: Open connections of the namespace.
        links: Links of one connection.
        frame_size: Largest AMQP frame, in bytes.
        message_size: Largest delivery, in bytes; an entity may allow less.
        write_buffer: Bytes that may wait for a client that does not read.
        sniff_timeout: Seconds for the first byte of a connection and for a TLS handshake.
        open_timeout: Seconds until an AMQP connection is open and authorized, and for an HTTP
            request to arrive.
        idle_timeout: Seconds without a frame after which a silent peer is disconnected.
        credits_per_second: Credits that the namespace gets each second; an operation that finds
            none is refused with server-busy. 0: no throttling; None: 1,000 on Standard, 0 on
            Premium.
        is_debt_owed: Whether credits that an operation used beyond the limit are taken from the
            next second.
        detach_throttled_receivers: Whether a receiver that grants link credit while the namespace
            has no credits is detached with server-busy; otherwise it waits for the next second.
        idle_link_timeout: Seconds until a link is detached on which nothing was sent or received.
            0: never; None: 600.
        idle_connection_timeout: Seconds until a connection without links is closed. 0: never;
            None: 60.
    """

    connections: int = 5000
    links: int = 1000
    frame_size: int = 1024 * 1024
    message_size: int = 100 * 1024 * 1024
    write_buffer: int = 1024 * 1024
    sniff_timeout: float = 20.0
    open_timeout: float = 60.0
    idle_timeout: float = 240.0
    credits_per_second: int | None = None
    is_debt_owed: bool = True
    detach_throttled_receivers: bool = False
    idle_link_timeout: float | None = None
    idle_connection_timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("connections", "links", "frame_size", "message_size", "write_buffer"):
            least = MIN_MAX_FRAME_SIZE if name == "frame_size" else 1
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be at least {least}")
        for name in ("sniff_timeout", "open_timeout", "idle_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be more than 0 seconds, and finite")
        for name in ("credits_per_second", "idle_link_timeout", "idle_connection_timeout"):
            if not 0 <= (getattr(self, name) or 0) < math.inf:
                raise ValueError(f"{name} must be 0 (off) or more, and finite")


class Tier(enum.StrEnum):
    """The pricing tier that a namespace behaves like."""

    STANDARD = "standard"
    PREMIUM = "premium"

    @classmethod
    def parse(cls, text: str) -> Tier:
        """The tier of this name; ValueError if there is none."""
        try:
            return cls(text.lower())
        except ValueError:
            raise ValueError(f"{text!r} is not a tier: use standard or premium") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of one namespace; `pairbus.broker.run` documents them."""

    namespace: str = "contoso"
    port: int = 0
    host: str = "127.0.0.1"
    memory: bool = True
    data: Path | None = None
    durability: Literal["normal", "full"] = "normal"
    entities: Mapping[str, Any] | str | Path | None = None
    key: str | None = field(default=None, repr=False)
    key_name: str = DEFAULT_KEY_NAME
    control_port: int | None = None
    clock: Callable[[], float] | None = None
    limits: Limits = Limits()
    allowed_origins: tuple[str, ...] = ()
    tier: Tier | None = None

    def __post_init__(self) -> None:
        try:
            check_name(
                self.namespace, "namespace"
            )  # it is a segment of the paths of backlog queues
        except ArgumentError:
            raise ValueError(f"{self.namespace!r} is not a valid name of a namespace") from None
        for name in ("port", "control_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port < 65536:
                raise ValueError(f"{name} must be from 0 to 65535, got {port}")
        if self.memory == (self.data is not None):
            raise ValueError("a namespace is either in memory or has a data directory, not both")
        if self.durability not in DURABILITIES:
            raise ValueError(f"durability is one of {', '.join(DURABILITIES)}")
        _check_credential("the key", self.key)
        _check_credential("the name of the key", self.key_name)
        for origin in self.allowed_origins:
            _check_origin(origin)
        if self.key is None and not self.is_loopback:
            raise ValueError(
                f"{self.host} can be reached by others: a key of your own is needed"
                " (the well-known key is for loopback addresses only)"
            )
        if self.key == WELL_KNOWN_KEY and not self.is_loopback:
            raise ValueError(f"{self.host} can be reached by others: choose a key of your own")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def effective_tier(self) -> Tier:
        """The tier: the chosen one, that of the environment variable, or Standard."""
        return self.tier or Tier.parse(os.environ.get(TIER_VARIABLE) or "standard")

    @property
    def credits_per_second(self) -> int:
        """Credits of the namespace: the chosen number, or that of its tier."""
        if self.limits.credits_per_second is not None:
            return self.limits.credits_per_second
        return STANDARD_CREDITS if self.effective_tier is Tier.STANDARD else 0

    @property
    def idle_link_timeout(self) -> float:
        """Seconds until an idle link is detached: chosen, or the service's."""
        chosen = self.limits.idle_link_timeout
        return IDLE_LINK_TIMEOUT if chosen is None else chosen

    @property
    def idle_connection_timeout(self) -> float:
        """Seconds until a connection without links is closed: chosen, or the service's."""
        chosen = self.limits.idle_connection_timeout
        return IDLE_CONNECTION_TIMEOUT if chosen is None else chosen

    def with_declared(self, tier: str | None, limits: Mapping[str, float]) -> BrokerSettings:
        """These settings, completed with those of a configuration file; arguments take precedence.

        Raises:
            ValueError: There is no such tier or limit.
        """
        chosen = {name: getattr(self.limits, name) for name in limits}
        missing: dict[str, Any] = {n: limits[n] for n, value in chosen.items() if value is None}
        return replace(
            self,
            tier=self.tier or (Tier.parse(tier) if tier else None),
            limits=replace(self.limits, **missing),
        )

    @property
    def shared_access_key(self) -> str:
        """The chosen key, or the well-known one."""
        return self.key or WELL_KNOWN_KEY

    @property
    def reachable_host(self) -> str:
        """The address that clients on this machine use."""
        return "127.0.0.1" if self.host in {"", "0.0.0.0"} else self.host

    def connection_string(self, port: int) -> str:
        """Return the connection string of the namespace that listens on `port`."""
        return format_connection_string(
            join_host(self.reachable_host, port),
            key_name=self.key_name,
            key=self.shared_access_key,
            is_emulator=True,
        )


def _check_credential(what: str, text: str | None) -> None:
    """Refuse a part of a connection string that could not be read from it again."""
    if text == "":
        raise ValueError(f"{what} is empty")
    if text is not None and (";" in text or text != text.strip()):
        raise ValueError(
            f"{what} cannot be part of a connection string: it has a semicolon, or a space or line "
            "break at its start or end"
        )


def _check_origin(origin: str) -> None:
    """Refuse an origin that no browser sends, because it would allow nothing."""
    if origin in ("*", "null", "file://"):
        return
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = parts.hostname or ""
    if not parts.scheme or not host or not host.isascii() or "*" in host:
        raise ValueError(
            f"{origin!r} is not an allowed origin: give one such as https://app.example, or *"
        )
    default = {"http": 80, "https": 443}.get(parts.scheme)
    sent = f"{parts.scheme}://{join_host(host, None if port == default else port)}"
    if origin != sent:
        raise ValueError(f"{origin!r} is not an allowed origin: a browser sends {sent!r}")
