"""A TCP proxy between a client and any broker that injects faults."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

from pairbus.broker.server.sockets import Port, abort_with_reset
from pairbus.names import (
    AMQP_PORT,
    is_connection_string,
    join_host,
    parse_connection_string,
    replace_endpoint,
    split_host,
)

MODES = ("pass", "refuse", "reset", "stall", "deaf", "slow", "cut")


class FaultProxy:
    """A TCP proxy in front of a broker (or the real service) that injects faults.

    Args:
        target: A connection string, or "host:port".
        host: The address that it listens on; by default the loopback address of the target's
            family: `::1` if the target is an IPv6 address, otherwise `127.0.0.1`.
        latency: Seconds that each piece of data waits in the mode `slow`.

    Modes, set at any time with `proxy.mode = …`; the mode is in effect when the assignment returns:

    * `pass`: forwards all bytes.
    * `refuse`: the listener is closed, connections are reset.
    * `reset`: connections are reset, new ones as soon as they are accepted.
    * `stall`: nothing is forwarded in either direction, and nothing is lost: `pass` continues.
    * `deaf`: bytes of the client are forwarded, answers of the broker are discarded.
    * `slow`: each piece of data waits for `latency` seconds.
    * `cut`: half of the next piece of data from a client is forwarded, then all is reset.
    """

    def __init__(self, target: str, *, host: str | None = None, latency: float = 0.05) -> None:
        self._target_string = target
        if is_connection_string(target):
            target = parse_connection_string(target).authority
        name, port = split_host(target)
        self.target = (name, port or AMQP_PORT)
        self.host = host or ("::1" if ":" in name else "127.0.0.1")
        self.port = 0
        self.latency = latency
        self._mode = "pass"
        self.pipes: set[_Pipe] = set()
        self.transports: set[asyncio.Transport] = set()  # not closed yet
        self._port = Port()
        self._joining: set[asyncio.Task[Any]] = set()
        self.loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<FaultProxy {self.address} {self._mode} connections={len(self.pipes)}>"

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> FaultProxy:
        """Listen on a free port."""
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="pairbus-fault-proxy", daemon=True
        )
        self._thread.start()
        try:
            self._wait(self._listen())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop listening and reset open connections."""
        if self._thread is None:
            return
        self._wait(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self._thread = None

    @property
    def address(self) -> str:
        """The proxy's "host:port"."""
        return join_host(self.host, self.port)

    @property
    def connection_string(self) -> str:
        """The target's connection string, with the address of the proxy."""
        return replace_endpoint(self._target_string, self.address)

    @property
    def mode(self) -> str:
        """The mode of the proxy: one of `MODES`."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}; use one of {', '.join(MODES)}")
        self._wait(self._change(mode))

    @property
    def connections(self) -> int:
        """How many connections are open through the proxy."""
        return len(self.pipes)

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    async def _listen(self) -> None:
        listener = self._port.listen(self.host, self.port)
        self.port = self._port.address[1]
        self.loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        # Not with `create_server`: it loses a connection that is accepted while it is being closed.
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client has disconnected
        connection.setblocking(False)
        joining = self.loop.connect_accepted_socket(lambda: _Pipe(self), connection)
        task = self.loop.create_task(joining)
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _change(self, mode: str) -> None:
        before, self._mode = self._mode, mode
        if mode in {"refuse", "reset"} or (before == "deaf" and mode != "deaf"):
            for pipe in list(self.pipes):
                pipe.abort()
        if mode == "refuse":
            await self._close_listener()
        elif self._port.listener is None:
            await self._listen()
        for pipe in list(self.pipes):
            pipe.pump()

    async def _stop(self) -> None:
        await self._close_listener()
        self._port.release()
        if tasks := asyncio.all_tasks(self.loop) - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        while self.transports:  # including those whose peer has closed, with unsent bytes
            for transport in list(self.transports):
                abort_with_reset(transport)
            await asyncio.sleep(0)

    async def _close_listener(self) -> None:
        if self._port.listener is not None:
            self.loop.remove_reader(self._port.listener)
            self._port.refuse()
            if self._joining:
                await asyncio.wait(self._joining)
            for pipe in list(self.pipes):  # accepted in the meantime
                pipe.abort()


class _Side(asyncio.Protocol):
    """One of the two connections; the proxy knows its transport until it is closed."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.proxy.transports.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.proxy.transports.discard(self.transport)


class _Pipe(_Side):
    """A connection of a client, ours to the target, and the bytes queued in each direction."""

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__(proxy)
        self.client: asyncio.Transport | None = None
        self.target: asyncio.Transport | None = None
        self.to_target = bytearray()
        self.to_client = bytearray()
        self.is_cut = False
        self.dialing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.proxy.mode == "reset":
            abort_with_reset(self.transport)
            return
        self.client = self.transport
        self.proxy.pipes.add(self)
        self.dialing = self.proxy.loop.create_task(self._dial())

    async def _dial(self) -> None:
        try:
            transport, _ = await self.proxy.loop.create_connection(
                lambda: _TargetSide(self), *self.proxy.target
            )
        except OSError:
            self.abort()
            return
        if self.client is None:
            transport.abort()
            return
        self.target = transport
        self.pump()

    def data_received(self, data: bytes) -> None:
        self.to_target += data
        self.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.client = None
        self.lost()

    def pump(self) -> None:
        mode = self.proxy.mode
        if mode == "stall" or self.is_cut:
            return
        if mode == "cut" and self.to_target and self.target is not None:
            self.target.write(bytes(self.to_target[: max(1, len(self.to_target) // 2)]))
            self.is_cut = True  # nothing may follow: no network drops bytes in the middle
            self.proxy.loop.call_later(0.02, self.abort)  # after the half has arrived
            return
        to_client = bytes(self.to_client)
        self.to_client.clear()
        to_target = b""
        if self.target is not None:
            to_target = bytes(self.to_target)
            self.to_target.clear()
        if mode == "slow":
            self.proxy.loop.call_later(self.proxy.latency, self._flush, to_target, to_client)
        else:
            self._flush(to_target, b"" if mode == "deaf" else to_client)

    def _flush(self, to_target: bytes, to_client: bytes) -> None:
        if to_target and self.target is not None:
            self.target.write(to_target)
        if to_client and self.client is not None:
            self.client.write(to_client)

    def abort(self) -> None:
        self._forget(abort_with_reset)

    def lost(self) -> None:
        """One side has closed: close the other after the bytes that are queued for it."""
        self._forget(lambda transport: transport.close())

    def _forget(self, end: Callable[[asyncio.Transport], None]) -> None:
        self.proxy.pipes.discard(self)
        for transport in (self.client, self.target):
            if transport is not None:
                end(transport)
        self.client = self.target = None


class _TargetSide(_Side):
    def __init__(self, pipe: _Pipe) -> None:
        super().__init__(pipe.proxy)
        self.pipe = pipe

    def data_received(self, data: bytes) -> None:
        self.pipe.to_client += data
        self.pipe.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.pipe.target = None
        self.pipe.lost()
