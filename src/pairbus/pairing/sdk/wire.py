"""The connection below an SDK sender: opened quickly, found, cut, released."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from pairbus.pairing.sdk.contract import (
    CLIENT_READY,
    CLIENT_READY_ASYNC,
    CONNECTION,
    CREATE_HANDLER,
    HANDLER,
    SESSION,
    SOCK,
    TRANSPORT,
    WRITER,
    is_async,
)

logger = logging.getLogger("pairbus.sdk")

_POLLS = 20  # more than the frames that the peer sends while a link opens

_closing: set[asyncio.Task[None]] = set()  # sessions of web sockets


class Opening:
    """Remembers the handler that an SDK sender creates while it opens, and lets it open quickly.

    When the peer hangs up during the handshake, the SDK drops its connection without closing it (it
    closes none that has no session yet), and no other code has a reference to it. And the SDK
    sleeps for 50 ms after each frame of the peer, half a second in all: here it reads the next
    frame immediately.
    """

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._is_async = is_async(sender)
        self._handler: Any = None
        self._is_patched = False
        try:
            create = CREATE_HANDLER.of(sender)
            HANDLER.of(sender)
        except AttributeError:
            return

        def create_and_remember(*args: Any, **kwargs: Any) -> None:
            create(*args, **kwargs)
            self._handler = HANDLER.of(sender)
            _poll_quickly(self._handler, self._is_async)

        setattr(sender, CREATE_HANDLER.name, create_and_remember)
        self._is_patched = True

    def end(self) -> None:
        """Remove the patch: the call that opens the sender has ended."""
        if self._is_patched:
            self._is_patched = False
            delattr(self._sender, CREATE_HANDLER.name)
            for ready in (CLIENT_READY, CLIENT_READY_ASYNC):
                vars(self._handler or self).pop(ready.name, None)

    def cut(self) -> None:
        """Close the connection that the handler left open, if it did."""
        cut(_wire(self._handler, self._is_async))


def _poll_quickly(handler: Any, is_async: bool) -> None:
    ready = CLIENT_READY_ASYNC if is_async else CLIENT_READY
    try:
        is_ready = ready.of(handler)  # waits for one frame; returns whether the link is open
    except AttributeError:
        return

    async def poll_async() -> bool:
        for _ in range(_POLLS):
            if await is_ready():
                return True
        return False

    def poll() -> bool:
        return any(is_ready() for _ in range(_POLLS))

    setattr(handler, ready.name, poll_async if is_async else poll)


def wire_of(sender: Any) -> Any:
    """The socket below `sender`, in the async SDK its stream writer; None if there is none."""
    try:
        return _wire(HANDLER.of(sender), is_async(sender))
    except AttributeError:
        return None


def _wire(handler: Any, is_async: bool) -> Any:
    try:
        transport = TRANSPORT.of(CONNECTION.of(handler))
        if not is_async:
            return SOCK.of(transport)
        try:
            session = SESSION.of(transport)
        except AttributeError:
            return WRITER.of(transport)
        return AioWebSocket(SOCK.of(transport), session) if session is not None else None
    except AttributeError:
        return None


class AioWebSocket:
    """A web socket of the async SDK, cut without an exchange of frames with the peer.

    Its own `close` is a coroutine that waits for the peer, and after a failure the SDK does not
    close the session that the socket came from.
    """

    def __init__(self, wire: Any, session: Any) -> None:
        self._wire = wire
        self._session = session

    def close(self) -> None:
        """Shut the connection down, and close the session in the background."""
        below = None if self._wire is None else self._wire.get_extra_info("socket")
        if below is not None:
            try:
                below.shutdown(socket.SHUT_RDWR)  # its transport sees the end and closes it
            except OSError:
                logger.debug("the web socket was closed already")
        if not self._session.closed:
            task = asyncio.get_running_loop().create_task(self._session.close())
            _closing.add(task)
            task.add_done_callback(_closing.discard)


def hang_up(sender: Any) -> None:
    """Cut the connection below `sender`, so that a thread stuck in it returns."""
    cut(wire_of(sender))


def cut(wire: Any) -> None:
    """Cut a connection immediately and release it: after some failures the SDK does not."""
    if wire is None:
        return
    try:
        if isinstance(wire, socket.socket):
            # As a plain socket: a TLS socket would first exchange alerts with a silent peer.
            socket.socket.shutdown(wire, socket.SHUT_RDWR)
    except (OSError, ValueError):
        logger.debug("the connection was closed already")
    try:
        wire.close()
    except Exception as error:  # noqa: BLE001  # a web socket raises its own; it is closed anyway
        logger.debug("closing a connection: %r", error)


def release(wire: Any) -> None:
    """Close this process's end of a connection that its parent process continues to use.

    Nothing is sent to the peer, and the connection is not shut down.
    """
    inner = getattr(wire, "sock", wire)  # of a web socket
    if isinstance(inner, socket.socket):
        try:
            inner.close()
        except OSError as error:
            logger.debug("releasing a connection: %r", error)
