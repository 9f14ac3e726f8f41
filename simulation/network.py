"""Connections in memory, with the faults of a network.

Each address has conditions that can be changed at any time: connections are refused or hang, data
is late, comes in small segments, is held back in one direction, or a connection is cut within a
frame. A connection delivers the bytes of each direction in order, whatever their delays.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation.ownership import Owner, owner_of

if TYPE_CHECKING:
    from simulation.loop import SimulatedLoop

_HIGH = 64 << 10  # bytes in the transport's own buffer at which a writer is paused
_KERNEL = 128 << 10  # bytes that the operating systems of both sides hold


@dataclass
class Conditions:
    """How the network treats the connections of one address.

    Attributes:
        refuse: connections are refused.
        hang: connections are neither made nor refused.
        silent_in: data to the address is held back.
        silent_out: data from the address is held back.
        latency: seconds that data is on its way, at least and at most.
        segment: most bytes that arrive together; 0 for any number.
        hits: how often it broke, refused or delayed a connection, or held data back.
    """

    refuse: bool = False
    hang: bool = False
    silent_in: bool = False
    silent_out: bool = False
    latency: tuple[float, float] = (0.0001, 0.002)
    segment: int = 0
    hits: int = 0


@dataclass(frozen=True)
class _Listener:
    accept: Callable[[], asyncio.BaseProtocol]
    context: contextvars.Context


class Network:
    """All addresses and connections of a run."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self.loop = loop
        self.random = chance
        self._listeners: dict[tuple[str, int], _Listener] = {}
        self._conditions: dict[tuple[str, int], Conditions] = {}
        self._connections: list[tuple[tuple[str, int], Transport]] = []
        self._next_port = 50_000

    def note(self, what: str, data: bytes = b"") -> None:
        """Add to the trace."""
        self.loop.trace.add(self.loop.time(), what, data)

    # -- addresses

    def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[str, int]:
        """Accept connections at the address; port 0 picks one."""
        if not port:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self._listeners:
            raise OSError(98, "Address already in use")
        self._listeners[host, port] = _Listener(factory, contextvars.copy_context())
        self.note(f"listen {port}")
        return host, port

    def shut(self, host: str, port: int) -> None:
        """Refuse connections from now on."""
        self._listeners.pop((host, port), None)
        self.note(f"shut {port}")

    def conditions(self, host: str, port: int) -> Conditions:
        """The conditions of an address: change them, then call `changed`."""
        return self._conditions.setdefault((host, port), Conditions())

    def changed(self) -> None:
        """Deliver data that is no longer held back."""
        self.note("conditions changed")
        for _, transport in list(self._connections):
            transport.deliver()
            transport.peer.deliver()

    # -- connections

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[Transport, asyncio.BaseProtocol]:
        """Connect to an address.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        conditions = self.conditions(host, port)
        await asyncio.sleep(self._delay(conditions))
        while conditions.hang:
            conditions.hits += 1
            await asyncio.sleep(1.0)
        listener = self._listeners.get((host, port))
        conditions.hits += conditions.refuse
        if listener is None or conditions.refuse:
            self.note(f"refused {port}")
            raise ConnectionRefusedError(111, f"Connect call failed ({host!r}, {port})")
        self._next_port += 1
        client = Transport(self, conditions, ("127.0.0.1", self._next_port), (host, port))
        server = Transport(self, conditions, (host, port), ("127.0.0.1", self._next_port))
        server.is_server = True
        server.context = listener.context
        client.peer, server.peer = server, client
        self._connections.append(((host, port), server))
        self.note(f"connected {self._next_port} to {port}")
        server.context.copy().run(lambda: server.begin(listener.accept()))
        client.begin(factory())
        return client, client.get_protocol()

    def _delay(self, conditions: Conditions) -> float:
        return self.random.uniform(*conditions.latency)

    def forget(self, transport: Transport) -> None:
        """Both sides of a connection have ended."""
        self._connections = [
            entry for entry in self._connections if entry[1] not in (transport, transport.peer)
        ]

    def end(self) -> None:
        """The run is over: nobody needs to close the open connections."""
        for _, server in self._connections:
            server.closing = server.peer.closing = True

    def kill(self, process: Owner) -> None:
        """A process is gone: its connections end after what it wrote, or with a reset."""
        for _, server in list(self._connections):
            client = server.peer
            if owner_of(client.context) is process and not client.has_ended:
                client.closing = client.has_ended = True
                if self.random.random() < 0.5:
                    client.on_the_way.clear()
                    server.fail(ConnectionResetError(104, "Connection reset by peer"))
                elif not client.is_half_open:
                    client.deliver()

    # -- faults for connections that exist

    def reset(self, host: str, port: int) -> int:
        """Reset all connections of an address; how many there were."""
        return self._each(host, port, lambda server: server.reset())

    def cut(self, host: str, port: int) -> int:
        """Deliver a part of the data on its way, then reset: a frame may be incomplete."""
        return self._each(host, port, lambda server: server.cut())

    def drop(self, host: str, port: int) -> int:
        """The server's side vanishes without a word, as after a power failure (half-open)."""
        return self._each(host, port, lambda server: server.vanish())

    def _each(self, host: str, port: int, act: Callable[[Transport], None]) -> int:
        found = [server for address, server in self._connections if address == (host, port)]
        self.conditions(host, port).hits += len(found)
        for server in found:
            act(server)
        return len(found)


class Transport(asyncio.Transport):
    """One side of a connection."""

    peer: Transport

    def __init__(
        self,
        network: Network,
        conditions: Conditions,
        own: tuple[str, int],
        other: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": own, "peername": other})
        self._network = network
        self._loop = network.loop
        self._conditions = conditions
        self.is_server = False
        self._protocol: Any = None
        self.on_the_way: deque[tuple[float, bytes]] = deque()  # due time and data, for the peer
        self._unsent = 0
        self._high, self._low = _HIGH, _HIGH // 4
        self._is_full = False
        self.reading = True
        self.closing = False
        self.has_ended = False
        self.is_begun = False
        self.is_half_open = False
        self.context = contextvars.copy_context()
        """The context of this side's protocol: it shows whose callbacks these are."""
        self._last_due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Transport {self.get_extra_info('sockname')}>"

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Connected."""
        self._protocol = protocol
        self.is_begun = True
        protocol.connection_made(self)
        self.peer.deliver()

    # -- asyncio.Transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that gets the data."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the data to another protocol."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Closed, or about to be."""
        return self.closing

    def is_reading(self) -> bool:
        """Data is delivered to the protocol."""
        return self.reading and not self.closing

    def pause_reading(self) -> None:
        """Deliver nothing for now."""
        self.reading = False

    def resume_reading(self) -> None:
        """Deliver again."""
        self.reading = True
        self.peer.deliver()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to pause and resume the writer."""
        self._high = _HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes that are written and that the operating system did not take yet."""
        return max(0, self._unsent - _KERNEL)

    def can_write_eof(self) -> bool:
        """Half-closing is not simulated."""
        return False

    def write(self, data: Any) -> None:
        """Send; it arrives later."""
        data = bytes(data)
        if self.closing or not data or self.is_half_open:
            return
        conditions, chance = self._conditions, self._network.random
        conditions.hits += self._is_held or conditions.segment > 0
        while data:
            size = len(data)
            if conditions.segment:
                size = min(size, chance.randint(1, conditions.segment))
            part, data = data[:size], data[size:]
            delay = chance.uniform(*conditions.latency)
            self._last_due = max(self._last_due, self._loop.time() + delay)
            self.on_the_way.append((self._last_due, part))
            self._unsent += len(part)
        if self.get_write_buffer_size() > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()
        self.deliver()

    def close(self) -> None:
        """End the stream after the written data."""
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self._end, None, context=self.context)
            self.deliver()

    def abort(self) -> None:
        """Reset: the peer sees an error, and written data may be lost."""
        if not self.has_ended:
            self.closing = True
            self.on_the_way.clear()
            self._loop.call_soon(self._end, None, context=self.context)
            if not self.is_half_open:
                self.peer.fail(ConnectionResetError(104, "Connection reset by peer"))

    # -- delivering what this side wrote to the other side

    @property
    def _is_held(self) -> bool:
        conditions = self._conditions
        return conditions.silent_out if self.is_server else conditions.silent_in

    def deliver(self) -> None:
        """Arrange for the next data to be delivered, if it may be."""
        if self._timer is None and self._may_deliver():
            due = self.on_the_way[0][0] if self.on_the_way else self._loop.time()
            self._timer = self._loop.call_at(
                max(due, self._loop.time()), self._arrive, context=self.peer.context
            )

    def _may_deliver(self) -> bool:
        peer = self.peer
        if self._is_held or self.is_half_open or peer.has_ended or not peer.is_begun:
            return False
        return (bool(self.on_the_way) and peer.reading) or (self.closing and not self.on_the_way)

    def _arrive(self) -> None:
        self._timer = None
        if not self._may_deliver():
            return
        peer = self.peer
        if not self.on_the_way:  # everything has arrived, and this side is closed
            peer.ended()
            return
        _, data = self.on_the_way.popleft()
        self._unsent -= len(data)
        self._network.note(f"data {self.get_extra_info('sockname')[1]} {len(data)}", data)
        peer.take(data)
        if self._is_full and self.get_write_buffer_size() <= self._low:
            self._is_full = False
            if not self.has_ended:
                self._protocol.resume_writing()
        self.deliver()

    def take(self, data: bytes) -> None:
        """Data has arrived at this side."""
        if self.closing:
            return
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data:
                buffer = memoryview(protocol.get_buffer(len(data)))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                protocol.buffer_updated(size)
                data = data[size:]
        else:
            protocol.data_received(data)

    def ended(self) -> None:
        """The peer's stream has ended."""
        if not self.closing and not self._protocol.eof_received():
            self.close()

    def _end(self, error: Exception | None) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        self._network.note(f"lost {self.get_extra_info('sockname')[1]} {type(error).__name__}")
        self._protocol.connection_lost(error)
        self.deliver()
        if self.peer.has_ended:
            self._network.forget(self)

    # -- faults

    def fail(self, error: Exception) -> None:
        """The connection broke at this side."""
        if not self.has_ended:
            self.closing = True
            self.on_the_way.clear()
            self._loop.call_soon(self._end, error, context=self.context)

    def reset(self) -> None:
        """Break the connection at both sides."""
        for side in (self, self.peer):
            side.fail(ConnectionResetError(104, "Connection reset by peer"))

    def cut(self) -> None:
        """Let a part of the data through, then break the connection."""
        for side in (self, self.peer):
            if side.on_the_way and not side.peer.closing and side.peer.is_begun:
                data = side.on_the_way[0][1]
                part = data[: self._network.random.randrange(len(data))]
                if part:
                    side.peer.take(part)
        self.reset()

    def vanish(self) -> None:
        """This side is gone, and the other one does not notice."""
        self.is_half_open = self.peer.is_half_open = True
        self.fail(ConnectionResetError(104, "Connection reset by peer"))
