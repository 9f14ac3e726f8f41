"""Runs the live page: in the foreground for the command, on a thread for tests and the demo."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from pairbus.dashboard.app import create_app
from pairbus.dashboard.guard import Guard
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.monitor import PairMonitor
from pairbus.names import join_host


class Server(uvicorn.Server):
    """A server that ends its event streams before it shuts down."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the server."""
        self.config.app.state.stop()  # type: ignore[union-attr]
        await super().shutdown(sockets)


@dataclass(frozen=True)
class Page:
    """A running live page."""

    monitor: PairMonitor
    guard: Guard
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address."""
        return f"http://{join_host(self.host, self.port)}/"

    @property
    def link(self) -> str:
        """The address with the token, for pause and resume."""
        return f"{self.url}?token={self.guard.token}"


def prepare(
    pair: Pair,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    tick: float = 1.0,
    refresh: float = 5.0,
) -> tuple[Page, Server, socket.socket]:
    """Bind the address and make the server; nothing runs yet."""
    guard = Guard(host, token, hosts)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    monitor = PairMonitor(pair, tick=tick, refresh=refresh)
    config = uvicorn.Config(
        create_app(monitor, guard), log_level="warning", access_log=False, server_header=False
    )
    page = Page(monitor, guard, host, listener.getsockname()[1])
    return page, Server(config), listener


@contextlib.contextmanager
def serving(pair: Pair, **options: object) -> Iterator[Page]:
    """A live page on a thread of its own, for as long as the block runs."""
    page, server, listener = prepare(pair, **options)  # type: ignore[arg-type]
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="pairbus-page", daemon=True
    )
    thread.start()
    try:
        yield page
    finally:
        server.should_exit = True
        thread.join(timeout=15)
        listener.close()
