"""Paired clients in forked processes, such as the workers of an application server.

A child process has copies of the parent's objects, but none of its threads, and its sockets are the
parent's too. So in the child a sync client releases the parent's connections without closing them,
and starts again at its first use, with its own links, timers, pings, ledger rows and status file.
An async client belongs to the parent's event loop and cannot be used in the child.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger("pairbus.fork")

_clients: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
_modules: list[Callable[[], None]] = []


def reset_in_child(reset: Callable[[], None]) -> None:
    """Call `reset` in every child process, before any client: for the state of a module."""
    _modules.append(reset)


def on_fork(client: T, restart: Callable[[T], None], fault: Callable[[T], None]) -> None:
    """Call `restart(client)` in a child process."""
    _clients[client] = restart


def aon_fork(client: T, restart: Callable[[T], None], fault: Callable[[T], None]) -> None:
    """Call `fault(client)` in a child process: its event loop has stayed in the parent."""
    _clients[client] = fault


def _after_fork() -> None:
    for reset in _modules:
        reset()
    for client, call in list(_clients.items()):
        try:
            call(client)
        except Exception:
            logger.exception("a paired client cannot be used in this forked process")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
