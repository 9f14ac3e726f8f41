# generated from src/pairbus/syphon/_async/connections.py by tools/gen_unasync.py; edit that one
"""The connections of one process: one per namespace and role, kept from task to task.

Spark reuses its Python workers, so a connection is opened once and used by task after task. A
worker reads in one task and writes in the next: the role keeps the two apart.
"""

import os
import ssl
from typing import Any

from pairbus.client._sync.connection import BulkConnection
from pairbus.client._sync.management import BulkManagement
from pairbus.client._sync.receiver import BulkReceiver
from pairbus.client._sync.sender import BulkSender
from pairbus.client.errors import ClientError
from pairbus.client.settlement import Mode
from pairbus.runtime import Runtime
from pairbus.syphon.target import OptionError, Target, credential_errors

__all__ = ["ConnectionPool", "NamespaceConnections", "check_access"]


def open_connection(runtime: Runtime, target: Target, timeout: float) -> BulkConnection:
    """Make a connection; its first use connects."""
    options: dict[str, Any] = {"timeout": timeout, "runtime": runtime}
    if target.ca_file:
        try:
            options["ssl_context"] = ssl.create_default_context(cafile=target.ca_file)
        except OSError as exc:
            raise OptionError(f"caFile: {target.ca_file}: {exc.strerror or exc}") from None
    text = target.connection_string()
    if text is not None:
        return BulkConnection(text, **options)
    credential = target.token_credential()
    if hasattr(credential, "get_token"):
        credential = _Credential(credential)
    return BulkConnection(host=target.host, credential=credential, **options)


class _Credential:
    """A token credential whose errors are those of the bulk client."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    def get_token(self, *scopes: str) -> Any:
        """Ask the credential."""
        with credential_errors():
            return self._credential.get_token(*scopes)


def check_access(
    runtime: Runtime, target: Target, entity: str, timeout: float = 10.0
) -> ClientError | None:
    """Connect and authorize; return None, or the error.

    If the connection string is for one entity (`EntityPath`), that entity is used.
    """
    try:
        with open_connection(runtime, target, timeout) as connection:
            connection.authorize(connection.entity_path or entity, connection.deadline())
    except ClientError as exc:
        return exc
    return None


class _Open:
    """A connection and its links."""

    def __init__(self, connection: BulkConnection) -> None:
        self.connection = connection
        self.receivers: dict[tuple[str, Mode], BulkReceiver] = {}
        self.senders: dict[str, BulkSender] = {}


class ConnectionPool:
    """The connections of one process. A forked child does not use its parent's."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.condition()
        self._open: dict[tuple[int, str, Target], _Open] = {}

    def get(self, target: Target, role: str, timeout: float) -> _Open:
        """Return the connection of this role; a new one if there is none that works."""
        key = (os.getpid(), role, target)
        with self._guard:
            found = self._open.get(key)
        if found is not None and found.connection.is_usable:
            return found
        # Without the guard: a credential factory may be slow.
        new = _Open(open_connection(self._runtime, target, timeout))
        with self._guard:
            now = self._open.get(key)
            if now is None or now is found:
                now = self._open[key] = new
            return now  # if another caller was first, `new` is dropped: it has not connected yet

    def find(self, target: Target, role: str) -> _Open | None:
        """Return the connection of this role, if there is one."""
        return self._open.get((os.getpid(), role, target))

    def take(self, target: Target, role: str) -> _Open | None:
        """Take the connection of this role out of the pool."""
        with self._guard:
            return self._open.pop((os.getpid(), role, target), None)


class NamespaceConnections:
    """The connection to one namespace in one role; it is opened when it is first used."""

    def __init__(
        self, pool: ConnectionPool, target: Target, role: str, *, timeout: float = 30.0
    ) -> None:
        self._pool = pool
        self._target = target
        self._role = role
        self._timeout = timeout

    def _get(self) -> _Open:
        return self._pool.get(self._target, self._role, self._timeout)

    def receiver(self, entity: str, mode: Mode = Mode.PEEK_LOCK) -> BulkReceiver:
        """Return a receiver, attached."""
        found = self._get()
        receiver = found.receivers.get((entity, mode))
        if receiver is None or receiver.is_detached:
            receiver = found.connection.receiver(entity, mode=mode)
            found.receivers[entity, mode] = receiver
        return receiver

    def forget_receiver(self, entity: str) -> None:
        """Close the receiver; the next use opens a new one."""
        found = self._pool.find(self._target, self._role)
        if found is not None:
            for mode in Mode:
                receiver = found.receivers.pop((entity, mode), None)
                if receiver is not None and found.connection.is_usable:
                    receiver.close()

    def sender(self, entity: str) -> BulkSender:
        """Return a sender, attached."""
        found = self._get()
        sender = found.senders.get(entity)
        if sender is None or sender.is_detached:
            sender = found.senders[entity] = found.connection.sender(entity)
        return sender

    def management(self, entity: str) -> BulkManagement:
        """Return an entity's management node."""
        return self._get().connection.management(entity)

    def drop(self) -> None:
        """Close the connection; the next use opens a new one."""
        found = self._pool.take(self._target, self._role)
        if found is not None:
            found.connection.close()
