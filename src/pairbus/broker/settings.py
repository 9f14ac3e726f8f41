"""What a broker is started with: its name, address, key, store and limits."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pairbus.names import format_connection_string, join_host

DEFAULT_KEY_NAME = "RootManageSharedAccessKey"
#: The official emulator's key, known to everybody: accepted on loopback addresses only.
WELL_KNOWN_KEY = "SAS_KEY_VALUE"
DURABILITIES = ("normal", "full")


class BrokerStartError(Exception):
    """The broker cannot start; the text is one line for its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may take, so that none can take the broker down.

    Attributes:
        connections: Open connections of the namespace.
        links: Links of one connection.
        frame_size: Largest AMQP frame, in bytes.
        message_size: Largest delivery, in bytes; an entity may allow less.
        write_buffer: Bytes that may wait for a client that does not read.
        sniff_timeout: Seconds for the first byte of a connection and for a TLS handshake.
        open_timeout: Seconds until an AMQP connection is open and authorized, and for an HTTP
            request to arrive.
        idle_timeout: Seconds without a frame after which an idle peer is given up.
    """

    connections: int = 5000
    links: int = 1000
    frame_size: int = 1024 * 1024
    message_size: int = 100 * 1024 * 1024
    write_buffer: int = 1024 * 1024
    sniff_timeout: float = 20.0
    open_timeout: float = 60.0
    idle_timeout: float = 240.0


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

    def __post_init__(self) -> None:
        if not self.namespace or "/" in self.namespace:
            raise ValueError(f"{self.namespace!r} is no name for a namespace")
        if self.memory == (self.data is not None):
            raise ValueError("a namespace is either in memory or has a data folder")
        if self.durability not in DURABILITIES:
            raise ValueError(f"durability is one of {', '.join(DURABILITIES)}")
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
    def shared_access_key(self) -> str:
        """The key, chosen or well-known."""
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
