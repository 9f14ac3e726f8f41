"""Which SDK clients are part of a pair in this process, so that none is part of two."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pairbus.exceptions import PairingError
from pairbus.names import namespace_from_host
from pairbus.options import check_namespace_name

_lock = threading.Lock()
_primaries: weakref.WeakSet[Any] = weakref.WeakSet()
_secondaries: weakref.WeakSet[Any] = weakref.WeakSet()


def enter(primary: Any, secondary: Any) -> None:
    """Register two clients as a pair.

    Raises:
        PairingError: if they cannot be paired; nothing is registered then.
    """
    if primary is secondary or _host(primary) == _host(secondary):
        raise PairingError(
            f"Both clients are for the same namespace, {primary.fully_qualified_namespace}: "
            "a pair needs two."
        )
    with _lock:
        if primary in _primaries:
            raise PairingError("This primary client is paired already.")
        if primary in _secondaries:
            raise PairingError("This primary client is the secondary of another pair.")
        if secondary in _primaries:
            raise PairingError("The secondary client is itself paired.")
        if secondary in _secondaries:
            raise PairingError("The secondary client is the secondary of another primary client.")
        _primaries.add(primary)
        _secondaries.add(secondary)


def reset() -> None:
    """Use a new lock in a forked process: a thread of the parent may have held the old one."""
    global _lock
    _lock = threading.Lock()


def leave(primary: Any, secondary: Any) -> None:
    """Forget the pair."""
    with _lock:
        _primaries.discard(primary)
        _secondaries.discard(secondary)


def check_same_namespace(primary: Any, secondary: Any, admin: Any) -> None:
    """Refuse an administration client of another namespace than the secondary's.

    Raises:
        PairingError: if it is.
    """
    host, other = _host(secondary), _host(admin)
    names = [namespace_from_host(one) for one in (host, other)]
    if None not in names and names[0] != names[1]:  # an address may be that of a proxy
        raise PairingError(
            f"secondary_admin is for the namespace {names[1]}, but secondary is for {names[0]}: "
            "both must be for the same namespace."
        )
    if other == _host(primary) != host:
        raise PairingError(
            f"secondary_admin is for the primary, {other}, but secondary is for {host}: "
            "both must be for the same namespace."
        )


def _host(client: Any) -> str:
    return str(client.fully_qualified_namespace).rstrip("/").lower()


def namespace_of(client: Any, option: str | None) -> str:
    """The primary's name in backlog paths: the option, or the first label of its host name.

    Raises:
        PairingError: if the host is an address, and no option names it.
    """
    if option is not None:
        return check_namespace_name(option)
    host = _host(client)
    name = namespace_from_host(host)
    if name is None:
        raise PairingError(
            f"The primary's host, {host}, is an address and names no namespace: "
            "give the option primary_namespace."
        )
    return check_namespace_name(name)
