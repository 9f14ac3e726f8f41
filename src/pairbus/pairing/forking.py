"""Paired clients in forked processes, such as the workers of an application server.

A child process has copies of the parent's objects, but none of its threads, and its sockets are the
parent's too. So in the child a sync client releases the parent's connections without closing them,
and starts again at its first use, with its own links, timers, pings, ledger rows and status file.
An async client belongs to the parent's event loop and cannot be used in the child.

Everything that a fork needs is decided here. The modules with threads or locks have a `reset`, and
the classes have methods that are of use without a fork too: a sender releases its connections, an
entity continues from a state.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pairbus.pairing import registry, resolving, runtime
from pairbus.pairing.sdk import deadlines
from pairbus.status import new_client_id

if TYPE_CHECKING:
    from pairbus.pairing._sync.lifecycle import Lifecycle

logger = logging.getLogger("pairbus.fork")

FORKED = "the process was forked: make the clients and the pair in the child"

_clients: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
_restarting = threading.Lock()


def on_fork(lifecycle: Any) -> None:
    """Let a sync client start again in every child process."""
    _clients[lifecycle] = _release


def aon_fork(lifecycle: Any) -> None:
    """Make an async client unusable in every child process."""
    _clients[lifecycle] = _fault


def restart(forked: Any) -> None:
    """Start a client whose side is `forked`, at its first use in the child process."""
    lifecycle: Lifecycle = forked  # only sync clients start again
    with _restarting:
        side, old = lifecycle.paired_side, lifecycle.pair
        if side.state != "forked":
            return  # another thread has done it
        client_id = old.ledger.client_id if old.ledger is not None else new_client_id()
        clients = old.primary, old.secondary
        pair = type(old)(*clients, old.primary_namespace, old.options, client_id, old.ledger)
        pair.use_queues(old.rotation.paths, old.message_limit)
        for entity in list(old.entities.values()):
            pair.entity(entity.name).resume(entity)
        for sender in list(lifecycle.senders):
            sender.use(pair)
        lifecycle.pair = pair
        side.state = "open"
    if side.state != "open":
        return  # another thread has closed it
    if old.unprotected is not None:
        lifecycle.protect()  # only with a link: the parent goes on to create the queues
    lifecycle.keep_status()
    lifecycle.close_if_dropped()


def close(forked: Any) -> bool:
    """Close a client whose side is `forked`: nothing was started in the child process.

    False if another thread has just used it, so that it must be closed like any other.
    """
    with _restarting:
        if forked.paired_side.state != "forked":
            return False
        forked.paired_side.end("closed", "close() was called")
    forked.forget(is_final=True)
    forked.secondary_side.end("closed", "close() was called")
    registry.leave(forked.primary, forked.secondary)
    return True


def _release(lifecycle: Lifecycle) -> None:
    if lifecycle.paired_side.state not in ("open", "forked"):
        _fault(lifecycle)
        return
    _forget(lifecycle)
    lifecycle.paired_side.state = "forked"


def _fault(lifecycle: Any) -> None:
    """Make the client unusable; closing it in the child closes nothing."""
    _forget(lifecycle, is_final=True)
    for side in (lifecycle.paired_side, lifecycle.secondary_side):
        side.end("faulted", FORKED)


def _forget(lifecycle: Any, *, is_final: bool = False) -> None:
    """Release what belongs to the parent, without closing it."""
    lifecycle.forget(is_final=is_final)
    if lifecycle.pair.ledger is not None:
        lifecycle.pair.ledger.begin(new_client_id())
    for sender in list(lifecycle.senders):
        sender.abandon()


def _after_fork() -> None:
    global _restarting
    _restarting = threading.Lock()
    for module in (registry, runtime, deadlines, resolving):
        module.reset()
    for lifecycle, call in list(_clients.items()):
        try:
            call(lifecycle)
        except Exception:
            logger.exception("a paired client cannot be used in this forked process")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
