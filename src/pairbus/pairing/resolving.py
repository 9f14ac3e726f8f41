"""Look up a host name before the SDK does, so that a resolver that hangs blocks nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from concurrent.futures import Future, InvalidStateError

from pairbus.pairing.abandoning import AbandonedError

logger = logging.getLogger("pairbus.tasks")

_lookups: dict[str, Future[None]] = {}
_lookups_guard = threading.Lock()


async def aresolve(host: str, deadline: float) -> None:
    """Wait until a lookup of `host` has ended, well or not, at most until `deadline`.

    The async SDK looks names up on the event loop's default executor. A resolver that hangs would
    occupy its threads, and no other name, such as the secondary's, could be looked up. So each name
    is first looked up here, on one thread for all callers that wait for it.

    Raises:
        AbandonedError: at the deadline.
    """
    with _lookups_guard:
        lookup = _lookups.get(host)
        if lookup is None or lookup.done():
            lookup = _lookups[host] = Future()
            thread = threading.Thread(
                target=_look_up, args=(host, lookup), name=f"pairbus lookup {host}", daemon=True
            )
            thread.start()
    waiting = asyncio.wrap_future(lookup)
    await asyncio.wait({waiting}, timeout=max(0.0, deadline - time.monotonic()))
    if not waiting.done():
        raise AbandonedError(f"looking up {host}")


def _look_up(host: str, lookup: Future[None]) -> None:
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        logger.debug("looking up %s: %s", host, error)  # the SDK reports it
    finally:
        with contextlib.suppress(InvalidStateError):  # the event loop was closed meanwhile
            lookup.set_result(None)


def reset() -> None:
    """Forget all lookups in a forked process, which has none of their threads."""
    global _lookups_guard
    _lookups_guard = threading.Lock()
    _lookups.clear()


def resolve(host: str, deadline: float) -> None:
    """Do nothing: the sync SDK opens links on a thread that can be abandoned."""
