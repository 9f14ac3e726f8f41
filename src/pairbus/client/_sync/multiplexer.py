# generated from src/pairbus/client/_async/multiplexer.py by tools/gen_unasync.py; edit that one
"""One AMQP connection, shared by many waiters without a background task.

One of the waiters is the reader: it reads the stream and dispatches events for all; the others wait
until it notifies them. The condition guards the engine and all state of the links. Every method
here expects the caller to hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pairbus.amqp.connection import Connection
from pairbus.amqp.errors import CONNECTION_FORCED, DETACH_FORCED, ProtocolError
from pairbus.amqp.events import Attached, Closed, Delivery, Detached, Disposed, Ended, Event, Flowed
from pairbus.client.errors import SOCKET_ERROR, ConnectionLostError
from pairbus.runtime import Runtime, Stream

if TYPE_CHECKING:
    from pairbus.client._sync.tokens import CbsTokens

NEVER = float("inf")


class Multiplexer:
    """The engine and the stream of one connection."""

    def __init__(self, runtime: Runtime, engine: Connection) -> None:
        self.runtime = runtime
        self.engine = engine
        self.condition = runtime.condition()
        self.tokens: CbsTokens | None = None  # the reader renews those that are due
        self._stream: Stream | None = None
        self._is_reading = False
        self._lost: ConnectionLostError | None = None

    # -- state

    @property
    def is_lost(self) -> bool:
        """The connection broke or was closed."""
        return self._lost is not None

    @property
    def is_connected(self) -> bool:
        """A stream was set; it may be lost by now."""
        return self._stream is not None

    @property
    def is_open(self) -> bool:
        """Connected, and not known to be lost."""
        return self._lost is None and self._stream is not None

    def check(self) -> None:
        """Raise if the connection is gone."""
        lost = self._lost
        if lost is not None:
            raise ConnectionLostError(lost.condition, lost.description, lost.info)

    def start(self, stream: Stream) -> None:
        """Use this stream from now on."""
        self._stream = stream
        self.engine.tick(self.runtime.monotonic())

    def fail(self, error: ConnectionLostError) -> None:
        """The connection is lost: close the stream and wake all waiters."""
        if self._lost is None:
            self._lost = error
            if self._stream is not None:
                self._stream.close()
        self.condition.notify_all()

    def close(self) -> None:
        """Send the close frame, without waiting for the peer."""
        if self._lost is None:
            if self._stream is not None:
                try:
                    self.engine.close()
                    self._flush()
                except ConnectionLostError:
                    pass  # the peer is gone
            self.fail(ConnectionLostError(CONNECTION_FORCED, "the connection is closed"))

    # -- reading and writing

    def flush(self) -> None:
        """Write the engine's output, as much as the stream accepts now."""
        self.check()
        self._flush()

    def poll(self) -> None:
        """Read arrived bytes, unless another caller reads, to notice that the peer is gone."""
        if self.is_open and not self._is_reading:
            try:
                while self._read() and self.is_open:
                    pass  # a TLS read returns one record, and the close may be in the last one
            except ConnectionLostError:
                pass  # `fail` has recorded it

    def wait_until(self, predicate: Callable[[], bool], deadline: float) -> bool:
        """Write, read and dispatch until the predicate holds; False at the deadline.

        Raises:
            ConnectionLostError: the connection broke before that.
        """
        while True:
            if predicate():
                if self.engine.has_data_to_send and self._lost is None:
                    self._flush()
                return True
            self.check()
            self._flush()
            now = self.runtime.monotonic()
            if now >= deadline:
                return False
            if self._is_reading:
                self._wait_beside_reader(deadline - now)
            else:
                self._read_for_all(deadline, now)

    def _wait_beside_reader(self, timeout: float) -> None:
        stream = self._stream
        if stream is None or not stream.has_unsent:
            self.condition.wait(timeout)
            return
        with self.condition.released():  # the reader may not know that there is unsent data
            stream.wait(timeout, read=False)

    def _read_for_all(self, deadline: float, now: float) -> None:
        stream = self._stream
        if stream is None:
            raise ConnectionLostError(CONNECTION_FORCED, "not connected")
        self._tick(now)
        wake = deadline
        if self.tokens is not None:
            wake = min(wake, self.tokens.next_due())
        due = self.engine.next_deadline()
        if due is not None:
            wake = min(wake, due)
        self._is_reading = True
        try:
            with self.condition.released():
                stream.wait(wake - now)
        finally:
            self._is_reading = False
            self.condition.notify_all()
        if self._lost is None:
            self._read()

    def _tick(self, now: float) -> None:
        try:
            self.engine.tick(now)
        except ProtocolError as exc:
            self.fail(ConnectionLostError(exc.condition, exc.description))
            self.check()
        if self.tokens is not None:
            self.tokens.run_due(now)
        self._flush()

    def _flush(self) -> None:
        stream = self._stream
        if stream is None:
            return
        try:
            data = self.engine.data_to_send()
            if data:
                stream.write(data)
            elif stream.has_unsent:
                stream.flush()
        except OSError as exc:
            raise self._failed(f"writing: {exc}") from exc

    def _read(self) -> bool:
        """Read arrived bytes, without waiting; return whether there were any."""
        stream = self._stream
        if stream is None:
            return False
        try:
            data = stream.read()
        except OSError as exc:
            raise self._failed(f"reading: {exc}") from exc
        if data is None:
            return False
        if not data:
            raise self._failed("the peer closed the connection")
        try:
            events = self.engine.receive_data(data)
        except ProtocolError as exc:
            self._violated(exc)
            raise ConnectionLostError(exc.condition, exc.description) from exc
        self._dispatch_all(events)
        return True

    def _failed(self, description: str) -> ConnectionLostError:
        error = ConnectionLostError(SOCKET_ERROR, description)
        self.fail(error)
        return error

    def _violated(self, error: ProtocolError) -> None:
        for event in error.events:
            self._dispatch(event)
        try:
            self._flush()
        except ConnectionLostError:
            pass  # the peer cannot be informed of the error
        self.fail(ConnectionLostError(error.condition, error.description))

    # -- dispatching

    def _dispatch_all(self, events: list[Event]) -> None:
        index, count = 0, len(events)
        while index < count:
            event = events[index]
            index += 1
            if type(event) is not Delivery:
                self._dispatch(event)
                continue
            first, link = index - 1, event.link
            while index < count:  # consecutive messages of one link are handed over together
                other = events[index]
                if type(other) is not Delivery or other.link is not link:
                    break
                index += 1
            link.context.on_deliveries(events[first:index])

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, Delivery):
            event.link.context.on_deliveries([event])
        elif isinstance(event, Disposed):
            if event.by_receiver:
                for sent in event.deliveries:
                    sent.link.context.on_outcome(sent, event)
            else:
                for link in list(event.session.links.values()):
                    if link.context is not None and not link.is_sender:
                        link.context.on_settled(event)
        elif isinstance(event, Flowed):
            if event.link is not None:
                event.link.context.on_flow(event)
        elif isinstance(event, Attached):
            event.link.context.on_attached(event.link)
        elif isinstance(event, Detached):
            event.link.context.on_detached(event.link, event.error)
        elif isinstance(event, Ended):
            default = "the peer ended the session"
            self.fail(ConnectionLostError.of(event.error, DETACH_FORCED, default))
        elif isinstance(event, Closed):
            self.fail(ConnectionLostError.of(event.error, CONNECTION_FORCED, "the peer closed"))
