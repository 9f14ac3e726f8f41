# generated from src/pairbus/client/_async/management.py by tools/gen_unasync.py; edit that one
"""`<entity>/$management`: settling by lock token, peeking, renewing, deferred messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pairbus.amqp.errors import INTERNAL_ERROR, NOT_FOUND
from pairbus.amqp.performatives import RCV_SECOND
from pairbus.amqp.types import Array, Int, UInt, Uuids
from pairbus.client._sync.requests import Pending, RequestLinks
from pairbus.client.errors import (
    ClientError,
    ConnectionLostError,
    OperationTimeoutError,
    RequestFailedError,
)
from pairbus.client.received import Received

if TYPE_CHECKING:
    from pairbus.client._sync.connection import BulkConnection

LockToken = UUID | bytes
"""A lock token, or the delivery tag, which is its little-endian form and faster to encode."""


def _tokens(tokens: Sequence[LockToken]) -> Array:
    """Return lock tokens as an AMQP array of uuid."""
    return Uuids.from_little_endian(
        [one if isinstance(one, bytes) else one.bytes_le for one in tokens]
    )


class BulkManagement:
    """An entity's management node; its links open with the first request."""

    def __init__(self, connection: BulkConnection, entity: str) -> None:
        self.connection = connection
        self.entity = entity
        self._links: RequestLinks | None = None

    def __repr__(self) -> str:
        return f"<BulkManagement {self.entity}>"

    def close(self) -> None:
        """Detach; a second call does nothing, and the next request attaches again."""
        if self._links is not None:
            self._links.close()

    # -- requests

    def request(self, operation: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Send one request; return the status code and the body of the answer.

        Raises:
            RequestFailedError: the answer is an error; it carries condition and status code.
        """
        ((answer, error),) = self._request_all(operation, [body])
        if error is not None:
            raise error
        return answer

    def _request_all(
        self, operation: str, bodies: Sequence[dict[str, Any]]
    ) -> list[tuple[tuple[int, Any], ClientError | None]]:
        """Send several requests, in flight at the same time; return each answer, or its error.

        A timeout or a lost connection is the error of those that have no answer yet.
        """
        connection, mux = self.connection, self.connection.mux
        deadline = connection.deadline()
        connection.connect()
        with mux.condition:
            mux.poll()  # the service detaches idle links
            connection.tokens.ensure(self.entity, deadline)
            links = self._links
            if links is None or links.is_detached:
                node = f"{self.entity}/$management"
                links = self._links = RequestLinks(connection, self.entity, node)
                links.attach(deadline)
            milliseconds = int(connection.timeout * 1000)
            properties = {
                "operation": f"com.microsoft:{operation}",
                "type": "entity-mgmt",
                "com.microsoft:server-timeout": UInt(min(0xFFFFFFFF, milliseconds)),
            }
            waiting = [links.post(properties, body) for body in bodies]
            missing: ClientError = OperationTimeoutError(f"{operation} on {self.entity}")
            try:
                mux.wait_until(lambda: all(one.is_done for one in waiting), deadline)
            except ConnectionLostError as exc:
                missing = exc
            for pending in waiting:
                if not pending.is_done:
                    links.forget(pending)
                    pending.error = missing
            return [_read(pending) for pending in waiting]

    # -- operations

    def settle_each(
        self,
        groups: Sequence[Sequence[LockToken]],
        status: str = "completed",
        reason: str | None = None,
        description: str | None = None,
    ) -> list[ClientError | None]:
        """Settle groups of lock tokens, one request each, in flight at the same time.

        Returns the error of each group, None if it was settled. After a `ConnectionLostError`,
        `LinkDetachedError` or `OperationTimeoutError` it is unknown whether it was settled.
        """
        bodies = []
        for group in groups:
            body: dict[str, Any] = {
                "disposition-status": status,
                "lock-tokens": _tokens(group),
            }
            if reason is not None:
                body["deadletter-reason"] = reason
            if description is not None:
                body["deadletter-description"] = description
            bodies.append(body)
        if not bodies:
            return []
        return [error for _, error in self._request_all("update-disposition", bodies)]

    def peek(self, from_sequence_number: int = 0, count: int = 100) -> list[Received]:
        """Peek messages without changing them."""
        body = {"from-sequence-number": from_sequence_number, "message-count": Int(count)}
        _, answer = self.request("peek-message", body)  # empty if there is no message
        return [Received(bytes(one["message"]), b"") for one in (answer or {}).get("messages", ())]

    def peek_pages(self, size: int) -> Iterator[list[Received]]:
        """Peek all messages of the entity, in pages of at most `size`; the last page is empty.

        An entity that does not exist holds no messages.
        """
        position = 0
        while True:
            try:
                page = self.peek(position, size)
            except ClientError as error:
                if error.condition == NOT_FOUND:
                    return
                raise
            yield page
            if not page:
                return
            position = (page[-1].sequence_number or 0) + 1

    def renew(self, tokens: Sequence[LockToken]) -> list[int]:
        """Renew locks; return the new end of each lock, in milliseconds since 1970."""
        _, answer = self.request("renew-lock", {"lock-tokens": _tokens(tokens)})
        return [int(one) for one in answer["expirations"]]

    def receive_deferred(self, sequence_numbers: Sequence[int]) -> list[Received]:
        """Receive deferred messages by number, locked."""
        ((received, error),) = self.receive_deferred_each([sequence_numbers])
        if error is not None:
            raise error
        return received

    def receive_deferred_each(
        self, groups: Sequence[Sequence[int]]
    ) -> list[tuple[list[Received], ClientError | None]]:
        """Receive groups of deferred messages, one request each, in flight at the same time.

        Returns the messages of each group, or its error. After a `ConnectionLostError`,
        `LinkDetachedError` or `OperationTimeoutError` the messages of the group may be locked.
        """
        bodies = [
            {
                "sequence-numbers": Array(tuple(group), 0x81),
                "receiver-settle-mode": UInt(RCV_SECOND),
            }
            for group in groups
        ]
        answers = self._request_all("receive-by-sequence-number", bodies)
        return [
            ([] if error is not None else _deferred(answer), error)
            for (_, answer), error in answers
        ]


def _deferred(answer: Any) -> list[Received]:
    """The messages in an answer to `receive-by-sequence-number`."""
    received = []
    for one in (answer or {}).get("messages", ()):
        token = one.get("lock-token")
        tag = token.bytes_le if isinstance(token, UUID) else b""
        received.append(Received(bytes(one["message"]), tag))
    return received


def _read(pending: Pending) -> tuple[tuple[int, Any], ClientError | None]:
    if pending.error is not None or pending.message is None:
        return (0, None), pending.error
    status, condition, description = pending.status()
    if 200 <= status < 300:
        return (status, pending.message.body), None
    error = RequestFailedError(condition or INTERNAL_ERROR, description, status)
    return (status, None), error
