"""One AMQP connection of a client: the engine, its links, and the socket.

Bytes go into the engine, events come out, handlers of links act on the namespace, and their answers
are written once per turn of the loop. An error ends only the connection on which it occurs: a
protocol error closes it with its condition, an error of the broker with `amqp:internal-error`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.amqp import sasl
from pairbus.amqp.connection import Connection, Phase, Role
from pairbus.amqp.errors import INTERNAL_ERROR, ProtocolError
from pairbus.amqp.events import (
    Attached,
    Begun,
    Closed,
    Delivery,
    Detached,
    Disposed,
    Ended,
    Flowed,
    Opened,
    SaslInitReceived,
)
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.performatives import Error
from pairbus.amqp.sasl import SaslInit, read_plain
from pairbus.broker.entities.errors import MessageLockLostError, UnauthorizedError
from pairbus.broker.entities.locks import LOCK_LOST
from pairbus.broker.server.cbs import Tokens
from pairbus.broker.server.link_end import rejected
from pairbus.broker.server.served_links import ServedLinks
from pairbus.broker.server.sockets import abort_with_reset

if TYPE_CHECKING:
    from pairbus.broker.server.server import Broker

_log = logging.getLogger("pairbus.broker.amqp")
_CLOSED = Phase.CLOSED  # looking up a member of an enum is slow in Python 3.11
UNAUTHORIZED_FRAME = 64 * 1024  # the largest frame before a token was accepted
MECHANISMS = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")  # in the order of the service
MAX_CHANNELS = 5000  # as the service; the limits of links and memory apply as well
UNAUTHORIZED_CHANNELS = 16  # before a token was accepted
UNAUTHORIZED_BYTES = 128 * 1024  # that a client may send before a token was accepted
LEAST_SHARE = 4096  # bytes that are always served in one turn
LONGEST_TURN = 0.02  # seconds that one connection may use the loop in one turn
UNREAD = 16  # times `write_buffer`: a client with more unread bytes is disconnected
CLOSE_TIMEOUT = 5.0  # seconds that a client which does not read has to read the last frames
READ_SIZE = 256 * 1024
"""Bytes of one read, into a buffer that all connections of a broker share.

asyncio would allocate this size for every read and release most of it, which takes longer than the
rest of a small read. A smaller buffer would result in smaller groups of pipelined messages."""


class AmqpConnection(asyncio.BufferedProtocol, asyncio.Protocol):
    """Serves AMQP on one connection.

    Args:
        broker: The namespace's broker.
        lost: Called when the connection is gone.
    """

    def __init__(self, broker: Broker, lost: Callable[[], None]) -> None:
        limits = broker.settings.limits
        self.broker = broker
        self.tokens = Tokens(broker.key_ring, broker.now)
        self.container_id = f"{broker.settings.namespace}-{uuid.uuid4().hex[:12]}"
        self.engine = Connection(
            Role.SERVER,
            container_id=self.container_id,
            max_frame_size=min(limits.frame_size, UNAUTHORIZED_FRAME),
            channel_max=MAX_CHANNELS - 1,
            handle_max=limits.links - 1,
            idle_time_out=limits.idle_timeout,
            max_message_size=limits.message_size,
            properties={"product": "pairbus"},
            sasl_mechanisms=MECHANISMS,
            require_sasl=False,
        )
        self.transport: asyncio.Transport | None = None
        self.is_paused = False
        self.is_silent = False
        self.namespace = broker.namespace
        self.links = ServedLinks(self)
        self._lost = lost
        self._buffer = broker.read_buffer
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._auth_timer: asyncio.TimerHandle | None = None
        self._is_flushing = False
        self._in_read = False
        self._unwritten = 0  # bytes of messages that the engine holds
        self._most_unwritten = limits.write_buffer // 4
        self._unauthorized_bytes = 0
        self._share = READ_SIZE  # bytes that are served in one turn of the loop
        self._unserved = b""

    def __repr__(self) -> str:
        return f"<AmqpConnection {self.engine!r}>"

    # -- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start, with a deadline for the first token."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        limit = self.broker.settings.limits.write_buffer
        transport.set_write_buffer_limits(high=limit, low=limit // 4)
        self.broker.connections.add(self)
        self._auth_timer = self._loop.call_later(
            self.broker.settings.limits.open_timeout, self._not_authorized
        )
        self._tick()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close every link: sessions are released, locks of messages stay until they expire."""
        self.transport = None
        self.broker.connections.discard(self)
        for timer in (self._timer, self._auth_timer):
            if timer is not None:
                timer.cancel()
        self.links.close()
        self.links.idle.stop()
        self._lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Serve the bytes that arrived."""
        data = bytes(self._buffer[:nbytes])
        if nbytes <= LEAST_SHARE and not self._unserved:
            self._serve(data)
        else:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Serve the frames that arrived, in several turns if they take long."""
        if self._unserved:
            self._unserved += data
            return
        share = self._share
        if len(data) > share:
            data, self._unserved = data[:share], data[share:]
        started = self._loop.time()
        self._serve(data)
        elapsed = self._loop.time() - started
        if elapsed > LONGEST_TURN:
            self._share = max(LEAST_SHARE, int(len(data) * LONGEST_TURN / elapsed))
        elif share < READ_SIZE:
            self._share = min(READ_SIZE, 2 * share)
        if self._unserved and self.transport is not None:
            self.transport.pause_reading()
            self._loop.call_soon(self._serve_rest)

    def _serve_rest(self) -> None:
        """Serve the bytes that remain from the last turn of the loop."""
        data, self._unserved = self._unserved, b""
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.resume_reading()
        self.data_received(data)

    def _serve(self, data: bytes) -> None:
        """Feed the engine and act on its events."""
        if self.is_silent:
            return
        if not self.tokens.claims:
            self._unauthorized_bytes += len(data)
            if self._unauthorized_bytes > UNAUTHORIZED_BYTES:
                self.close("amqp:resource-limit-exceeded", "Too much was sent without a token.")
                return
        self._in_read = True
        namespace = self.namespace
        namespace.committer.begin_turn()
        try:
            try:
                self._act_on(self.engine.receive_data(data))
            finally:
                namespace.committer.end_turn()
        except ProtocolError as violation:
            self._act_on(violation.events)
            _log.info("a client broke the protocol: %s", violation)
            self.flush()
            self.end()
            return
        except Exception:  # noqa: BLE001 (an error of the broker ends this connection only)
            _log.exception("a connection is closed after an error")
            self.engine.close(Error(INTERNAL_ERROR, "the broker failed to serve the connection"))
            self.flush()
            self.end()
            return
        finally:
            self._in_read = False
        self.flush()

    def eof_received(self) -> bool:
        """Close when the client has."""
        return False

    def pause_writing(self) -> None:
        """The client does not read: deliver nothing more until it does."""
        self.is_paused = True
        for handler in self.links.receivers():
            handler.pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.is_paused = False
        for handler in self.links.receivers():
            handler.resume()
        self.flush()

    # -- used by links --------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the engine's output now."""
        self._is_flushing = False
        self._unwritten = 0
        if self.transport is None or self.is_silent:
            self.engine.data_to_send()
            return
        data = self.engine.data_to_send()
        if data:
            self.transport.write(data)
            if self.is_paused:
                self._check_unread()
        if self.engine.phase is _CLOSED:
            self.end()

    def _check_unread(self) -> None:
        """Disconnect a client that sends requests and does not read the answers."""
        limit = UNREAD * self.broker.settings.limits.write_buffer
        if self.transport is not None and self.transport.get_write_buffer_size() > limit:
            _log.warning("a client is disconnected: it does not read the answers to its requests")
            self.transport.abort()

    def flush_soon(self, size: int = 0) -> None:
        """Write the engine's output at the end of this turn of the loop.

        It is written now if the messages of this turn exceed the client's share of memory; `size`
        is that of the newest.
        """
        self._unwritten += size
        if self._unwritten > self._most_unwritten:
            self.flush()
        elif not self._in_read and not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def authorized(self) -> None:
        """A token was accepted: set the next deadline to the expiry of a token."""
        self.engine.max_frame_size = self.broker.settings.limits.frame_size
        if self._auth_timer is not None:
            self._auth_timer.cancel()
        self.links.idle.start(self.namespace.now())
        wait = max(0.0, self.tokens.next_expiry() - self.broker.now())
        self._auth_timer = self._loop.call_later(min(wait, 86400.0) + 0.001, self._check_tokens)

    def end(self) -> None:
        """Close the connection; abort it after a timeout if the client does not read."""
        if self.transport is not None:
            self.transport.close()
            if self.is_paused:
                self._loop.call_later(CLOSE_TIMEOUT, self.transport.abort)

    def close(self, condition: str, description: str) -> None:
        """Close with an error for the client."""
        if self.engine.is_open_sent:
            self.engine.close(Error(condition, description))
        self.flush()
        self.end()

    def reset(self) -> None:
        """Reset the connection: the client sees no end of stream."""
        if self.transport is not None:
            abort_with_reset(self.transport)

    # -- events ----------------------------------------------------------------------------------

    def _act_on(self, events: Sequence[Any]) -> None:
        """Act on events in order; consecutive messages of one link are handled together."""
        index, count = 0, len(events)
        while index < count:
            event = events[index]
            index += 1
            if type(event) is Disposed:
                self._on_disposed(event)
                continue
            if type(event) is Flowed:
                following = events[index] if index < count else None
                if type(following) is not Flowed or following.link is not event.link:
                    self._act(event)  # of several grants in a row only the last one counts
                continue
            if type(event) is not Delivery:
                self._act(event)
                continue
            first = index - 1
            link = event.link
            while index < count and type(events[index]) is Delivery and events[index].link is link:
                index += 1
            if link.context is not None:
                link.context.on_deliveries(events[first:index])

    def _act(self, event: Any) -> None:
        if isinstance(event, Flowed):
            if event.link is not None and event.link.context is not None:
                event.link.context.on_flow()
        elif isinstance(event, Attached):
            self.links.on_attach(event.link, event.attach)
        elif isinstance(event, Detached):
            self.links.forget(event.link)
        elif isinstance(event, SaslInitReceived):
            self._on_sasl_init(event.init)
        elif isinstance(event, Begun):
            if len(self.engine.sessions) > UNAUTHORIZED_CHANNELS and not self.tokens.claims:
                self.close("amqp:resource-limit-exceeded", "Too many channels without a token.")
                return
            self.engine.begin(event.session)
        elif isinstance(event, Opened):
            self.engine.open(max_frame_size=self.broker.settings.limits.frame_size)
            self._tick()  # the client's open has its idle-time-out
        elif isinstance(event, Ended):
            self.links.close(event.session)
        elif isinstance(event, Closed):
            self.links.close()

    def _on_sasl_init(self, init: SaslInit) -> None:
        """Admit a client; PLAIN has a key, clients of other mechanisms authorize at `$cbs`."""
        try:
            if init.mechanism == "PLAIN":
                _, key_name, key = read_plain(init.initial_response)
                self.tokens.put_key(key_name, key)
                self.authorized()
        except (UnauthorizedError, ProtocolError):
            _log.info("a client was refused: its SASL PLAIN response has no valid key")
            self.engine.sasl_outcome(sasl.AUTH)
            return
        self.engine.sasl_outcome(sasl.OK)
        self._act_on(self.engine.receive_data(b""))

    def _on_disposed(self, event: Disposed) -> None:
        for low, high in event.unknown:  # settled on another link, and removed here
            lost = rejected(MessageLockLostError(LOCK_LOST))
            self.engine.settle_unknown(event.session, low, high, lost)
        if not event.by_receiver or not event.deliveries:
            return
        groups: Iterable[tuple[Link, list[Outgoing]]]
        if len(event.deliveries) == 1:
            groups = [(event.deliveries[0].link, event.deliveries)]
        else:
            by_link = defaultdict(list)
            for delivery in event.deliveries:
                by_link[delivery.link].append(delivery)
            groups = by_link.items()
        for link, deliveries in groups:
            if link.context is not None:
                link.context.on_disposition(deliveries, event.state, event.settled)

    # -- time ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.transport is None:
            return
        try:
            self.engine.tick(self._loop.time())
        except ProtocolError as silence:
            _log.debug("a client is disconnected: %s", silence.description)
            self.flush()
            self.end()
            return
        self.flush()
        deadline = self.engine.next_deadline()
        wait = 60.0 if deadline is None else max(0.01, deadline - self._loop.time())
        self._timer = self._loop.call_later(wait, self._tick)

    def _not_authorized(self) -> None:
        self.close("amqp:connection:forced", "The connection was not authorized in time.")

    def _check_tokens(self) -> None:
        self.links.detach_unauthorized()
        self.flush()
        if self.tokens.prune():
            self.authorized()
