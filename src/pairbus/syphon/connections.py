"""Connections of this process: one per namespace and role, kept across micro-batches.

Spark reuses its Python workers, and a module that is imported (not pickled) keeps its state, so a
connection is opened once and used by task after task. A worker reads in one task and writes in the
next: the role keeps the two apart.
"""

import gc
import os
import ssl
import threading
from typing import Any

from pairbus.client.connection import LeanConnection
from pairbus.client.management import LeanManagement
from pairbus.client.receiver import LeanReceiver, Mode
from pairbus.client.sender import LeanSender
from pairbus.names import split_host
from pairbus.spark.options import OptionError, Target

__all__ = ["Pool", "open_connection", "settle_in"]

_lock = threading.Lock()
_settled_in: set[int] = set()
_kept: dict[tuple[int, str, Target], "_Kept"] = {}


def open_connection(target: Target, timeout: float) -> LeanConnection:
    """A connection that was not kept; its first use connects."""
    options: dict[str, Any] = {"timeout": timeout}
    if target.ca_file:
        try:
            options["ssl_context"] = ssl.create_default_context(cafile=target.ca_file)
        except OSError as exc:
            raise OptionError(f"caFile: {target.ca_file}: {exc.strerror or exc}") from None
    text = target.connection_string()
    if text is not None:
        return LeanConnection(text, **options)
    host, port = split_host(target.host)
    if port is not None:
        options["port"] = port
    return LeanConnection(host=host, credential=target.token_credential(), **options)


def settle_in() -> None:
    """Once in a process: what is loaded stays, so the garbage collector need not look at it.

    A task makes and drops many thousand small objects; with the usual threshold the collector
    walks over all modules again and again, a tenth of a task's time.
    """
    if os.getpid() not in _settled_in:
        _settled_in.add(os.getpid())
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


class _Kept:
    """A connection and its links."""

    def __init__(self, connection: LeanConnection) -> None:
        self.connection = connection
        self.receivers: dict[tuple[str, Mode], LeanReceiver] = {}
        self.senders: dict[str, LeanSender] = {}


class Pool:
    """The connection to one namespace in one role, opened when it is first used."""

    def __init__(self, target: Target, role: str, *, timeout: float = 30.0) -> None:
        self._target = target
        self._role = role
        self._timeout = timeout

    @property
    def _key(self) -> tuple[int, str, Target]:
        return (os.getpid(), self._role, self._target)

    def connection(self) -> LeanConnection:
        """The connection; a new one where the last is gone."""
        return self._get().connection

    def _get(self) -> _Kept:
        with _lock:
            kept = _kept.get(self._key)
            if kept is not None and kept.connection.is_usable:
                return kept
            connection = open_connection(self._target, self._timeout)
            kept = _kept[self._key] = _Kept(connection)
            return kept

    def receiver(self, entity: str, mode: Mode = Mode.PEEK_LOCK) -> LeanReceiver:
        """A receiver, attached."""
        kept = self._get()
        key = (entity, mode)
        found = kept.receivers.get(key)
        if found is None or found.is_detached:
            found = kept.receivers[key] = kept.connection.receiver(entity, mode=mode)
        return found

    def forget_receiver(self, entity: str) -> None:
        """The next use opens a new one."""
        kept = _kept.get(self._key)
        if kept is not None:
            for mode in Mode:
                found = kept.receivers.pop((entity, mode), None)
                if found is not None and kept.connection.is_usable:
                    found.close()

    def sender(self, entity: str) -> LeanSender:
        """A sender, attached."""
        kept = self._get()
        found = kept.senders.get(entity)
        if found is None or found.is_detached:
            found = kept.senders[entity] = kept.connection.sender(entity)
        return found

    def management(self, entity: str) -> LeanManagement:
        """An entity's management node."""
        return self._get().connection.management(entity)

    def drop(self) -> None:
        """Close the connection; the next use opens a new one."""
        with _lock:
            kept = _kept.pop(self._key, None)
        if kept is not None:
            kept.connection.close()
