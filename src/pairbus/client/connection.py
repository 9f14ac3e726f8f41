"""One connection to a namespace, shared by many links and threads.

No thread runs behind it. Whoever waits for something reads the socket for everybody: one of the
waiting threads is the reader, hands out what arrives, and the others sleep until it has news. All
methods of the connection and its links may be called from any thread.

While nobody waits, nothing is read and no heartbeat goes out; a peer that wants them may then close
the connection, and the next use says so (`ConnectionLostError`): make a new one. `keep_alive=True`
starts a thread that looks after an idle connection instead. Reconnecting is left to the caller, who
alone knows what may be done twice.
"""

from __future__ import annotations

import itertools
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from pairbus._version import __version__
from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import CONNECTION_FORCED, DETACH_FORCED, ProtocolError
from pairbus.amqp.events import Attached, Closed, Delivery, Detached, Disposed, Ended, Event, Flowed
from pairbus.amqp.link import EndState, Session
from pairbus.client.auth import provider_of
from pairbus.client.cbs import TokenKeeper
from pairbus.client.endpoint import Endpoint, endpoint_of
from pairbus.client.errors import ConnectionLostError, OperationTimeoutError
from pairbus.client.management import LeanManagement
from pairbus.client.receiver import LeanReceiver, Mode
from pairbus.client.sender import LeanSender
from pairbus.client.transport import Transport
from pairbus.names import AMQP_PORT, AMQPS_PORT, join_host

_IDLE_TIME_OUT = 240.0  # seconds; Service Bus closes at this silence too


class LeanConnection:
    """A connection to one namespace; a context manager.

    Example:
        >>> with LeanConnection(connection_string) as connection:  # doctest: +SKIP
        ...     receiver = connection.receiver("orders")
        ...     for received in receiver.receive_now(500):
        ...         print(received.sequence_number)
    """

    def __init__(
        self,
        connection_string: str | None = None,
        *,
        host: str | None = None,
        credential: Any = None,
        port: int | None = None,
        tls: bool = True,
        ssl_context: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        keep_alive: bool = False,
        idle_time_out: float | None = _IDLE_TIME_OUT,
    ) -> None:
        """Set up; the first use connects.

        Args:
            connection_string: as the SDK takes it, emulator mode included.
            host: instead of a connection string: the fully qualified namespace.
            credential: with `host`: an object with `get_token(scope)` as in azure-identity, a
                `SasKey` or a `SasToken`.
            port: with `host`: the port, if not the usual one.
            tls: with `host`: whether to encrypt.
            ssl_context: instead of the system's trust settings.
            timeout: seconds for each operation that is given none of its own.
            keep_alive: look after the connection in a thread while nobody uses it.
            idle_time_out: seconds of silence after which the peer counts as gone.
        """
        if connection_string is not None:
            self.endpoint, provider, self.entity_path = endpoint_of(connection_string)
        elif host is not None:
            port = port or (AMQPS_PORT if tls else AMQP_PORT)
            authority = join_host(host, None if port in (AMQPS_PORT, AMQP_PORT) else port)
            self.endpoint = Endpoint(host, port, tls, authority)
            provider = provider_of(credential)
            self.entity_path = None
        else:
            raise ValueError("give a connection string, or host and credential")
        self.timeout = timeout
        self._ssl_context = ssl_context
        self._names = itertools.count()
        self.container_id = f"pairbus-{uuid.uuid4()}"
        self._condition = threading.Condition(threading.RLock())
        self._is_reading = False
        self._transport: Transport | None = None
        self._session: Session | None = None
        self._broken: ConnectionLostError | None = None
        self._tokens = TokenKeeper(self, provider)
        self._managements: dict[str, LeanManagement] = {}
        self._keep_alive = keep_alive
        self._keeper: threading.Thread | None = None
        self.engine = Connection(
            Role.CLIENT,
            container_id=self.container_id,
            hostname=self.endpoint.host,
            channel_max=0,
            idle_time_out=idle_time_out,
            properties={"product": "pairbus", "version": __version__},
        )

    # -- life ----------------------------------------------------------------------------------

    def connect(self, timeout: float | None = None) -> Self:
        """Connect now; a second call does nothing.

        Raises:
            ConnectionLostError: the peer cannot be reached, or the connection is gone.
            OperationTimeoutError: it did not answer in time.
        """
        deadline = self.deadline(timeout)
        with self._condition:
            self.check()
            if self._transport is None:
                context = None
                if self.endpoint.tls:
                    context = self._ssl_context or ssl.create_default_context()
                try:
                    self._transport = Transport.connect(
                        self.endpoint.host, self.endpoint.port, tls=context, deadline=deadline
                    )
                except (ConnectionLostError, OperationTimeoutError):
                    self.close()
                    raise
                self.engine.tick(time.monotonic())
                self.engine.open()
                self._session = self.engine.begin()
                if self._keep_alive:
                    self._keeper = threading.Thread(
                        target=self._keep, name="pairbus-lean-keep-alive", daemon=True
                    )
                    self._keeper.start()
            session = self._session
            if not self.wait_until(
                lambda: session is not None and session.state is EndState.ACTIVE, deadline
            ):
                self._break(ConnectionLostError(CONNECTION_FORCED, "the peer did not open"))
                raise OperationTimeoutError(f"opening {self.endpoint.host}:{self.endpoint.port}")
        return self

    def close(self) -> None:
        """Close, without waiting for the peer; a second call does nothing."""
        with self._condition:
            if self._broken is None:
                if self._transport is not None:
                    try:
                        self.engine.close()
                        self._flush()
                    except ConnectionLostError:
                        pass  # nobody is left to tell
                self._break(ConnectionLostError(CONNECTION_FORCED, "the connection is closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_usable(self) -> bool:
        """The connection is not known to be gone; reads what has arrived to find out."""
        with self._condition:
            if self._broken is None and self._transport is not None and not self._is_reading:
                try:
                    while self._read() and self.is_open:
                        pass  # TLS gives one record at a time, and the last one says it
                except ConnectionLostError:
                    pass  # noted
            return self._broken is None

    @property
    def is_open(self) -> bool:
        """Connected, and not known to be gone."""
        return self._broken is None and self._transport is not None

    def __repr__(self) -> str:
        state = "new" if self._transport is None else "open"
        if self._broken is not None:
            state = "closed"
        return f"<LeanConnection {self.endpoint.authority} {state}>"

    # -- links ---------------------------------------------------------------------------------

    def receiver(
        self,
        entity: str,
        *,
        mode: Mode = Mode.PEEK_LOCK,
        session_id: Any = None,
        timeout: float | None = None,
    ) -> LeanReceiver:
        """A receiver for a queue, subscription or dead-letter queue, attached."""
        return LeanReceiver(self, entity, mode, session_id).open(timeout)

    def sender(self, entity: str, *, timeout: float | None = None) -> LeanSender:
        """A sender for a queue or topic, attached."""
        return LeanSender(self, entity).open(timeout)

    def management(self, entity: str) -> LeanManagement:
        """The entity's management node; the same object for the same entity."""
        with self._condition:
            found = self._managements.get(entity.lower())
            if found is None or found.is_detached:
                found = self._managements[entity.lower()] = LeanManagement(self, entity)
            return found

    def wait_any(self, receivers: list[LeanReceiver], seconds: float) -> list[LeanReceiver]:
        """Long poll on many receivers at once: those that have something within `seconds`.

        What arrives is released again: this is a doorbell. Each receiver costs one receive.
        """
        deadline = self.deadline(seconds)
        with self._condition:
            for receiver in receivers:
                receiver.arm()
            try:
                self.wait_until(lambda: any(r.has_rung for r in receivers), deadline)
            finally:
                if self._broken is None:
                    for receiver in receivers:
                        receiver.disarm()
            self.wait_until(lambda: all(r.is_quiet for r in receivers), self.deadline())
            return [receiver for receiver in receivers if receiver.take_ring()]

    # -- for the links ---------------------------------------------------------------------------

    @property
    def lock(self) -> threading.Condition:
        """What guards the engine; links hold it while they call it."""
        return self._condition

    @property
    def session(self) -> Session:
        """The one session."""
        self.check()
        if self._session is None:
            raise ConnectionLostError(CONNECTION_FORCED, "not connected")
        return self._session

    def new_name(self, kind: str, entity: str) -> str:
        """A name for a link, unique in the connection."""
        return f"{self.container_id}-{kind}-{next(self._names)}-{entity}"

    def authorize(self, entity: str, deadline: float) -> None:
        """Make sure that the peer has a valid token for the entity."""
        self._tokens.ensure(entity, deadline)

    def deadline(self, timeout: float | None = None) -> float:
        """The time at which an operation that starts now must end."""
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    def check(self) -> None:
        """Raise if the connection is gone."""
        if self._broken is not None:
            raise ConnectionLostError(
                self._broken.condition, self._broken.description, self._broken.info
            )

    def flush(self) -> None:
        """Write out what the engine has to say, as far as the socket takes it now."""
        with self._condition:
            self.check()
            self._flush()

    def wait_until(self, predicate: Callable[[], bool], deadline: float) -> bool:
        """Write, read and dispatch until the predicate holds; False when time is up.

        Raises:
            ConnectionLostError: the connection broke before that.
        """
        condition = self._condition
        with condition:
            while True:
                if predicate():
                    if self.engine.has_data_to_send and self._broken is None:
                        self._flush()
                    return True
                self.check()
                self._flush()
                now = time.monotonic()
                if now >= deadline:
                    return False
                if self._is_reading:
                    self._wait_beside_reader(deadline - now)
                    continue
                self._step(deadline, now)

    def _wait_beside_reader(self, timeout: float) -> None:
        transport = self._transport
        if transport is None or not transport.has_unsent:
            self._condition.wait(timeout)
            return
        depth = self._release_all()  # the reader may not know that there is something to write
        try:
            transport.wait(timeout, read=False)
        finally:
            self._acquire_all(depth)

    def _step(self, deadline: float, now: float) -> None:
        """Be the reader: wait for the socket without the lock, then hand out what came."""
        transport = self._transport
        if transport is None:
            raise ConnectionLostError(CONNECTION_FORCED, "not connected")
        self._tick(now)
        wake = min(deadline, self._tokens.next_renewal())
        due = self.engine.next_deadline()
        if due is not None:
            wake = min(wake, due)
        self._is_reading = True
        depth = self._release_all()
        try:
            transport.wait(wake - now)
        finally:
            self._acquire_all(depth)
            self._is_reading = False
            self._condition.notify_all()
        if self._broken is None:
            self._read()

    def _release_all(self) -> Any:
        # The lock may be held more than once by this thread (a link's method within ours).
        return self._condition._release_save()  # type: ignore[attr-defined]  # noqa: SLF001

    def _acquire_all(self, depth: Any) -> None:
        self._condition._acquire_restore(depth)  # type: ignore[attr-defined]  # noqa: SLF001

    def _tick(self, now: float) -> None:
        try:
            self.engine.tick(now)
        except ProtocolError as exc:
            self._break(ConnectionLostError(exc.condition, exc.description))
            self.check()
        self._tokens.renew_due(now)
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        try:
            data = self.engine.data_to_send()
            if data:
                transport.write(data)
            elif transport.has_unsent:
                transport.flush()
        except ConnectionLostError as exc:
            self._break(exc)
            raise

    def _read(self) -> bool:
        """Take in what has arrived, without waiting; whether something had."""
        transport = self._transport
        if transport is None:
            return False
        try:
            data = transport.read()
            if data is None:
                return False
            events = self.engine.receive_data(data)
        except ConnectionLostError as exc:
            self._break(exc)
            raise
        except ProtocolError as exc:
            for event in exc.events:
                self._dispatch(event)
            lost = ConnectionLostError(exc.condition, exc.description)
            try:
                self._flush()
            except ConnectionLostError:
                pass  # the peer need not hear what it did wrong
            self._break(lost)
            raise lost from exc
        index, count = 0, len(events)
        while index < count:
            event = events[index]
            index += 1
            if type(event) is not Delivery:
                self._dispatch(event)
                continue
            first, link = index - 1, event.link
            while index < count:  # messages of one link that came together stay together
                other = events[index]
                if type(other) is not Delivery or other.link is not link:
                    break
                index += 1
            link.context.on_deliveries(events[first:index])
        return True

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
            self._break(ConnectionLostError.of(event.error, DETACH_FORCED, default))
        elif isinstance(event, Closed):
            self._break(ConnectionLostError.of(event.error, CONNECTION_FORCED, "the peer closed"))

    def _break(self, exc: ConnectionLostError) -> None:
        if self._broken is None:
            self._broken = exc
            if self._transport is not None:
                self._transport.close()
        self._condition.notify_all()

    def _keep(self) -> None:
        """Look after the connection while nobody waits on it."""
        try:
            while not self.wait_until(lambda: self._broken is not None, time.monotonic() + 3600):
                pass  # an hour without an end: the next one
        except ConnectionLostError:
            pass  # the next user is told
