"""The few places where pairbus looks inside the SDK, each with its reason.

Nothing here decides whether a message is safe. Where the SDK's insides look other than expected,
each function falls back to the answer that is always right, if slower: `readiness` says None, and
the send then runs where it can be left behind; `hang_up` does nothing, and a thread stays until the
peer lets go. Only `take_payloads` and `make_batch`, which redirect a batch byte for byte, depend on
a private field, and their tests run against every supported version of the SDK.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from typing import Any

from azure.core.settings import settings
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.exceptions import bare

logger = logging.getLogger("pairbus.sdk")

# What the SDK says of a handler that was closed, word for word.
SHUT_DOWN = (
    "The handler has already been shutdown. Please use ServiceBusClient to create a new instance."
)
_BATCH_BODY = 5  # position of the data sections in the SDK's message tuple


def no_retries(sender: Any) -> None:
    """Make `sender` try once. A retry would open links anew on the caller's own thread.

    The SDK opens a link inside a send, on each retry, and its SASL and TLS handshakes read with no
    timeout (`socket_timeout=` does not reach them: the transport sets it aside for the handshake).
    pairbus makes the retries itself, and opens links where they can be left behind.
    """
    try:
        sender._config.retry_total = 0  # noqa: SLF001
    except AttributeError:
        logger.debug("the SDK's sender keeps its retries")


def retries_of(client: Any) -> tuple[int, float, float, bool]:
    """How often the application wants an operation retried: total, factor, maximum, fixed."""
    config = getattr(client, "_config", None)
    mode = getattr(config, "retry_mode", "exponential")
    return (
        int(getattr(config, "retry_total", 3)),
        float(getattr(config, "retry_backoff_factor", 0.8)),
        float(getattr(config, "retry_backoff_max", 120)),
        str(getattr(mode, "value", mode)).lower() == "fixed",
    )


class Readiness:
    """What an open sender looks like, to tell cheaply whether it still does.

    A send on a ready sender does nothing but send: its link is attached, and its token good for a
    while. Otherwise the SDK would first open a link or renew the token, which may take for ever.
    """

    __slots__ = ("attached", "authenticator", "good_until", "handler", "link", "ok", "sender")

    def __init__(self, sender: Any) -> None:
        """Look at `sender`, which has just been opened.

        Raises:
            AttributeError, TypeError: if the SDK looks other than we know it.
        """
        self.sender = sender
        self.handler = sender._handler  # noqa: SLF001
        self.link = self.handler._link  # noqa: SLF001
        self.authenticator = authenticator = self.handler._cbs_authenticator  # noqa: SLF001
        self.attached = self.link.state
        self.ok = authenticator.auth_state
        if self.attached.name != "ATTACHED" or self.ok.name != "OK" or not sender._running:  # noqa: SLF001
            raise AttributeError("not open")
        window = float(authenticator._refresh_window) + 60  # noqa: SLF001
        self.good_until = float(authenticator._expires_on) - window  # noqa: SLF001

    def holds(self) -> bool:
        """Whether the sender is as it was, and its token good for a while."""
        return (
            self.sender._handler is self.handler  # noqa: SLF001
            and self.sender._running is True  # noqa: SLF001
            and self.link.state is self.attached
            and self.authenticator.auth_state is self.ok
            and time.time() < self.good_until
        )


def readiness(sender: Any) -> Readiness | None:
    """How `sender`, just opened, looks; None if the SDK looks other than we know it."""
    try:
        return Readiness(sender)
    except (AttributeError, TypeError, ValueError):
        return None


def wire_of(sender: Any) -> Any:
    """The socket below `sender`, in the async SDK its stream writer; None if there is none."""
    try:
        return _wire(sender._handler._connection._transport)  # noqa: SLF001
    except AttributeError:
        return None


def _wire(transport: Any) -> Any:
    return getattr(transport, "writer", None) or getattr(transport, "sock", None)


def keep_handler(sender: Any) -> None:
    """Keep what `sender` opens within reach, until `let_handler_go`.

    When the peer hangs up in the middle of the handshake, the SDK drops its connection without
    closing it (it closes none that has no session yet), and nobody else could.
    """
    create = getattr(sender, "_create_handler", None)
    if create is None:
        return

    def create_and_keep(*args: Any, **kwargs: Any) -> None:
        create(*args, **kwargs)
        sender._pairbus_handler = sender._handler  # noqa: SLF001

    sender._create_handler = create_and_keep  # noqa: SLF001


def let_handler_go(sender: Any, *, is_open: bool) -> None:
    """`sender` is open now and will close what it opened, or it failed and may have left it."""
    handler = sender.__dict__.pop("_pairbus_handler", None)
    sender.__dict__.pop("_create_handler", None)
    if handler is None or is_open:
        return
    connection = getattr(handler, "_connection", None)
    cut(_wire(getattr(connection, "_transport", None)))


def cut(wire: Any) -> None:
    """Cut a connection at once, and let go of it: the SDK forgets to in some of its failures."""
    if wire is None:
        return
    try:
        if isinstance(wire, socket.socket):
            # As a plain socket: a TLS socket would first say goodbye, to a peer that is deaf.
            socket.socket.shutdown(wire, socket.SHUT_RDWR)
    except (OSError, ValueError):
        logger.debug("the connection was gone already")
    try:
        wire.close()
    except Exception as error:  # noqa: BLE001  # a web socket raises its own; it is gone anyway
        logger.debug("letting go of a connection: %r", error)


def let_go(wire: Any) -> None:
    """Close this process's end of a connection that belongs to its parent, which goes on with it.

    Nothing is said to the peer, and the connection is not shut down.
    """
    inner = getattr(wire, "sock", wire)  # of a web socket
    if isinstance(inner, socket.socket):
        try:
            inner.close()
        except OSError as error:
            logger.debug("letting go of a connection: %r", error)


def hang_up(sender: Any) -> None:
    """Cut the connection below `sender`, so that a thread stuck in it comes back."""
    cut(wire_of(sender))


def is_shut_down(sender: Any) -> bool:
    """Whether somebody closed `sender`: its own `close`, or that of its client."""
    try:
        return bool(sender._shutdown.is_set())  # noqa: SLF001
    except AttributeError:
        return False


def poison(handler: Any, error: Exception) -> None:
    """Make every use of an SDK sender or receiver raise `error` from now on."""

    def refuse() -> None:
        raise bare(error)

    try:
        handler._check_live = refuse  # noqa: SLF001
    except AttributeError:
        logger.debug("%s cannot be told that its client was faulted", type(handler).__name__)


def batch_messages(batch: ServiceBusMessageBatch) -> list[Any]:
    """The messages that were added to `batch`, as the application gave them."""
    return list(getattr(batch, "_messages", []))


def take_payloads(batch: ServiceBusMessageBatch) -> list[bytes]:
    """The encoded messages of `batch`: what was added, whatever became of the objects since."""
    return [bytes(payload) for payload in batch._message[_BATCH_BODY]]  # noqa: SLF001


_EMPTY_BATCH = ServiceBusMessageBatch()


def make_batch(payloads: Sequence[bytes], max_size_in_bytes: int) -> ServiceBusMessageBatch:
    """A batch of messages that are encoded already; the caller has checked that they fit."""
    # A copy of an empty one: a new one encodes itself to know its size.
    batch = ServiceBusMessageBatch.__new__(ServiceBusMessageBatch)
    batch.__dict__.update(_EMPTY_BATCH.__dict__)
    batch._max_size_in_bytes = max_size_in_bytes  # noqa: SLF001
    batch._message = message = [*_EMPTY_BATCH._message]  # noqa: SLF001
    message[_BATCH_BODY] = [*payloads]
    batch._count = len(payloads)  # noqa: SLF001
    # Where the SDK would build the batch anew, from no messages, it must fail and not send nothing.
    batch._messages = [_Encoded()] * len(payloads)  # type: ignore[list-item]  # noqa: SLF001
    batch._size += sum(map(batch_cost, payloads))  # noqa: SLF001
    return batch


def add_payload(batch: ServiceBusMessageBatch, payload: bytes, message: Any) -> None:
    """Add an encoded message to `batch`, which has one already, as the SDK would.

    The SDK's own adding also describes the batch as a whole, after its first message.

    Raises:
        MessageSizeExceededError: if the batch is full.
    """
    size = batch._size + batch_cost(payload)  # noqa: SLF001
    if size > batch.max_size_in_bytes:
        raise MessageSizeExceededError(
            message=f"ServiceBusMessageBatch has reached its size limit: {batch.max_size_in_bytes}"
        )
    batch._message[_BATCH_BODY].append(payload)  # noqa: SLF001
    batch._size = size  # noqa: SLF001
    batch._count += 1  # noqa: SLF001
    batch._messages.append(message)  # noqa: SLF001


def is_tracing() -> bool:
    """Whether the SDK adds the context of a span to the messages that it writes."""
    return settings.tracing_implementation() is not None


class _Encoded:
    """Stands for a message of which there are only the encoded bytes."""


def adopt(batch: ServiceBusMessageBatch, sender: Any) -> None:
    """Make `batch` one of `sender`'s own, so that the SDK sends it as it is.

    The async SDK builds a batch anew, from objects that may have changed since they were added,
    unless it made the batch itself. Both transports write the very same bytes.
    """
    transport = getattr(sender, "_amqp_transport", None)
    if transport is not None and batch._amqp_transport is not transport:  # noqa: SLF001
        batch._amqp_transport = transport  # noqa: SLF001


def check_transport(client: Any) -> None:
    """Refuse a client on the retired uAMQP transport.

    Raises:
        ValueError: if it is.
    """
    if getattr(getattr(client, "_amqp_transport", None), "KIND", "pyamqp") != "pyamqp":
        raise ValueError("A client with uamqp_transport=True cannot be paired.")


def batch_cost(payload: bytes) -> int:
    """How much room an encoded message takes in a batch."""
    return len(payload) + (5 if len(payload) < 256 else 8)


class ShutDownError(Exception):
    """The SDK sender was closed behind our back, with its client."""


class UnwantedError(Exception):
    """While the send waited for its turn, its destination changed."""
