# generated from src/pairbus/client/_async/connection.py by tools/gen_unasync.py; edit that one
"""One connection to a namespace, shared by many links and their users.

All methods of the connection and its links may be called from any task or thread. One of the
callers that wait reads for all of them; see `multiplexer`. While no caller waits, nothing is read
and no heartbeat is sent; a peer that expects heartbeats may then close the connection, and the next
use raises `ConnectionLostError`. The caller has to open a new connection, because only the caller
knows which operations may be repeated.
"""

from __future__ import annotations

import itertools
import ssl
from typing import Any, Self

from pairbus._version import __version__
from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import CONNECTION_FORCED
from pairbus.amqp.link import EndState, Session
from pairbus.client._sync.management import BulkManagement
from pairbus.client._sync.multiplexer import Multiplexer
from pairbus.client._sync.receiver import BulkReceiver, LongPoll
from pairbus.client._sync.sender import BulkSender
from pairbus.client._sync.tokens import CbsTokens
from pairbus.client.auth import Signer, TokenCredential, provider_of
from pairbus.client.endpoint import Endpoint, endpoint_of
from pairbus.client.errors import SOCKET_ERROR, ConnectionLostError, ConnectTimeoutError
from pairbus.client.settlement import Mode
from pairbus.names import AMQP_PORT, AMQPS_PORT, join_host, split_host
from pairbus.runtime import ThreadRuntime, Runtime

_IDLE_TIME_OUT = 60.0  # seconds of silence after which a half-open connection is detected


class BulkConnection:
    """A connection to one namespace; a context manager.

    Example:
        >>> with BulkConnection(connection_string) as connection:  # doctest: +SKIP
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
        idle_time_out: float | None = _IDLE_TIME_OUT,
        runtime: Runtime | None = None,
    ) -> None:
        """Set up; the first use connects.

        Args:
            connection_string: as the SDK takes it, emulator mode included.
            host: instead of a connection string: the fully qualified namespace, `host[:port]`.
            credential: with `host`: an object with `get_token(scope)` as in azure-identity, a
                `SasKey` or a `SasToken`.
            port: with `host`: the port, if not the one in `host` or the default one.
            tls: with `host`: whether to encrypt.
            ssl_context: instead of the system's trust settings.
            timeout: seconds for each operation without a timeout of its own.
            idle_time_out: seconds of silence after which the peer counts as gone.
            runtime: clock, tasks and network; those of the process by default.
        """
        provider: Signer | TokenCredential
        if connection_string is not None:
            self.endpoint, provider, self.entity_path = endpoint_of(connection_string)
        elif host is not None:
            host, given = split_host(host)
            port = port or given or (AMQPS_PORT if tls else AMQP_PORT)
            authority = join_host(host, None if port in (AMQPS_PORT, AMQP_PORT) else port)
            self.endpoint = Endpoint(host, port, tls, authority)
            provider = provider_of(credential)
            self.entity_path = None
        else:
            raise ValueError("give a connection string, or host and credential")
        self.timeout = timeout
        self.runtime = runtime or ThreadRuntime()
        self.container_id = f"pairbus-{self.runtime.uuid4()}"
        self._ssl_context = ssl_context
        self._names = itertools.count()
        self._opening = self.runtime.lock()
        self._session: Session | None = None
        engine = Connection(
            Role.CLIENT,
            container_id=self.container_id,
            hostname=self.endpoint.host,
            channel_max=0,
            idle_time_out=idle_time_out,
            properties={"product": "pairbus", "version": __version__},
        )
        self.mux = Multiplexer(self.runtime, engine)
        self.tokens = self.mux.tokens = CbsTokens(self, provider)
        self._managements: dict[str, BulkManagement] = {}

    # -- opening and closing

    def connect(self, timeout: float | None = None) -> Self:
        """Connect now; a second call does nothing.

        Raises:
            ConnectionLostError: the peer cannot be reached, or the connection is gone.
            ConnectTimeoutError: it did not answer in time.
        """
        mux, deadline = self.mux, self.deadline(timeout)
        with mux.condition:
            mux.check()
            if self._is_active():
                return self
        with self._opening:
            if not mux.is_connected:
                self._open(deadline)
        with mux.condition:
            if not mux.wait_until(self._is_active, deadline):
                mux.fail(ConnectionLostError(CONNECTION_FORCED, "the peer did not open"))
                raise ConnectTimeoutError(f"opening {self.endpoint.host}:{self.endpoint.port}")
        return self

    def _is_active(self) -> bool:
        return self._session is not None and self._session.state is EndState.ACTIVE

    def _open(self, deadline: float) -> None:
        mux, host, port = self.mux, self.endpoint.host, self.endpoint.port
        context = None
        if self.endpoint.tls:
            context = self._ssl_context or ssl.create_default_context()
        timeout = max(0.001, deadline - self.runtime.monotonic())
        try:
            stream = self.runtime.connect(host, port, tls=context, timeout=timeout)
        except TimeoutError as exc:
            self.close()
            raise ConnectTimeoutError(f"connecting to {host}:{port}") from exc
        except OSError as exc:
            self.close()
            raise ConnectionLostError(SOCKET_ERROR, f"connecting to {host}:{port}: {exc}") from exc
        with mux.condition:
            if mux.is_lost:
                stream.close()
            mux.check()
            mux.start(stream)
            mux.engine.open()
            self._session = mux.engine.begin()

    def close(self) -> None:
        """Close, without waiting for the peer; a second call does nothing."""
        with self.mux.condition:
            self.mux.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_usable(self) -> bool:
        """Whether the connection seems usable; reads arrived bytes to detect that it was lost."""
        with self.mux.condition:
            self.mux.poll()
            return not self.mux.is_lost

    def __repr__(self) -> str:
        state = "closed" if self.mux.is_lost else "open" if self.mux.is_connected else "new"
        return f"<BulkConnection {self.endpoint.authority} {state}>"

    # -- links

    def receiver(
        self,
        entity: str,
        *,
        mode: Mode = Mode.PEEK_LOCK,
        session_id: Any = None,
        timeout: float | None = None,
    ) -> BulkReceiver:
        """A receiver for a queue, subscription or dead-letter queue, attached."""
        return BulkReceiver(self, entity, mode, session_id).open(timeout)

    def sender(self, entity: str, *, timeout: float | None = None) -> BulkSender:
        """A sender for a queue or topic, attached."""
        return BulkSender(self, entity).open(timeout)

    def authorize(self, entity: str, deadline: float) -> None:
        """Connect, and make sure that the peer has a valid token for the entity."""
        self.connect()
        with self.mux.condition:
            self.tokens.ensure(entity, deadline)

    def management(self, entity: str) -> BulkManagement:
        """The entity's management node; the same object for the same entity."""
        with self.mux.condition:
            return self._managements.setdefault(entity.lower(), BulkManagement(self, entity))

    def wait_any(self, receivers: list[BulkReceiver], seconds: float) -> list[BulkReceiver]:
        """Long poll on many receivers; return those that got a message within `seconds`.

        The messages are released again. Each receiver costs one receive. The service ends a long
        poll after ten minutes by detaching the link: this counts as an early end without a message.
        """
        mux, deadline = self.mux, self.deadline(seconds)
        with mux.condition:
            for receiver in receivers:
                receiver.revive(self.deadline())
            polls = [LongPoll(receiver) for receiver in receivers]
            try:
                mux.wait_until(lambda: any(poll.is_over for poll in polls), deadline)
            finally:
                if not mux.is_lost:
                    for poll in polls:
                        poll.cancel()
            mux.wait_until(lambda: all(poll.is_quiet for poll in polls), self.deadline())
            return [poll.receiver for poll in polls if poll.finish()]

    # -- for the links

    @property
    def session(self) -> Session:
        """The one session."""
        self.mux.check()
        if self._session is None:
            raise ConnectionLostError(CONNECTION_FORCED, "not connected")
        return self._session

    def new_name(self, kind: str, entity: str) -> str:
        """A name for a link, unique in the connection."""
        return f"{self.container_id}-{kind}-{next(self._names)}-{entity}"

    def deadline(self, timeout: float | None = None) -> float:
        """The time at which an operation that starts now must end."""
        return self.runtime.monotonic() + (self.timeout if timeout is None else timeout)
