"""`<entity>/$management`: peek, schedule, defer, settle, renew, sessions and rules by request."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Callable
from typing import Any

from pairbus.amqp.errors import AmqpError
from pairbus.amqp.types import Array, Int, Timestamp, Uuids
from pairbus.broker.auth.sas import missing_claim
from pairbus.broker.entities.credits import MESSAGE
from pairbus.broker.entities.errors import (
    ArgumentError,
    BrokerError,
    MessageLockLostError,
    SessionLockLostError,
    StoreError,
)
from pairbus.broker.entities.locks import LOCK_LOST
from pairbus.broker.entities.messages import Delivery, Outcome
from pairbus.broker.entities.model import AccessRight
from pairbus.broker.faults.faults import REFUSALS
from pairbus.broker.server.incoming import read_message
from pairbus.broker.server.link_end import LinkEnd
from pairbus.broker.server.outgoing import render_delivery
from pairbus.broker.server.request_link import Reply
from pairbus.broker.server.requests import Request
from pairbus.broker.server.rule_requests import add_rule, enumerate_rules, remove_rule

_log = logging.getLogger("pairbus.broker.amqp")
_PREFIX = "com.microsoft:"
_MAX_PEEK = 250
_MAX_DELETE = 4000
_MAX_TIMESTAMP = dt.datetime.max.replace(tzinfo=dt.UTC).timestamp() * 1000 - 86_400_000

#: The answer of an operation: a status and a body.
Result = tuple[int, Any]


class ManagementNode:
    """Executes the requests for one entity. Each needs the claim of its operation."""

    status_names = ("statusCode", "statusDescription")

    def __init__(self, end: LinkEnd, entity: str) -> None:
        self.end = end
        self.entity = entity
        self.namespace = end.namespace
        if not self.is_authorized():
            raise missing_claim("'Listen' or 'Send'", entity)
        settings = self.namespace.catalog.entity(entity).settings
        # A request may schedule several messages, each of the largest size.
        self.max_request = min(4 * settings.max_message_size, end.engine.max_message_size)

    def is_authorized(self) -> bool:
        """Whether the client may still do anything here."""
        # Clients put a token for the entity or, as JavaScript's does, for the node itself.
        tokens = self.end.tokens
        return tokens.allows(AccessRight.LISTEN, self.end.path) or tokens.allows(
            AccessRight.SEND, self.end.path
        )

    def handle(self, request: Request, reply: Reply) -> None:
        """Execute one request, and answer when its changes are durable."""
        fault = self.end.faults.match("management", self.entity)
        reply.delay = fault.answer_delay
        try:
            if fault.kind in REFUSALS:
                raise fault.error()
            if fault.kind == "hang" and not fault.take:
                return
            status, body = self._execute(request)
        except BrokerError as error:
            reply.failed(error)
            return
        except (
            AmqpError,
            ArithmeticError,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:
            _log.debug("a request cannot be read: %r", error)
            reply.failed(ArgumentError(f"The request '{request.operation}' cannot be read."))
            return
        if fault.kind == "hang":
            return

        def done(error: Exception | None) -> None:
            if error is not None:
                reply.failed(StoreError("The broker could not store the request."))
            else:
                reply.ok(status, "OK" if status == 200 else "No content", body)

        self.end.committer.after_commit(done)

    def _execute(self, request: Request) -> Result:
        name = request.operation.removeprefix(_PREFIX)
        known = _OPERATIONS.get(name)
        if known is None:
            raise self.end.broker.unsupported(
                f"the management operation {request.operation[:80]!r}",
                f"The operation '{request.operation}' is not supported.",
            )
        right, throttled_as, operation = known
        self.end.tokens.require(right, self.end.path)
        if throttled_as is not None:
            self.end.throttle.check(self.entity, throttled_as)
        body = request.body if isinstance(request.body, dict) else {}
        return operation(self, request, body)

    # -- operations ------------------------------------------------------------------------------

    def peek(self, request: Request, body: dict[Any, Any]) -> Result:
        """Return messages without changing them."""
        found = self.namespace.peek(
            self.entity,
            int(body["from-sequence-number"]),
            _count(body, _MAX_PEEK),
            session_id=_optional(body, "session-id"),
        )
        self.end.throttle.charge(MESSAGE * len(found))
        if not found:
            return 204, None
        with_body = not body.get("omit-message-body")
        return 200, {
            "messages": [
                {"message": render_delivery(d, with_state=True, with_body=with_body)} for d in found
            ]
        }

    def schedule(self, request: Request, body: dict[Any, Any]) -> Result:
        """Schedule messages."""
        messages = [read_message(item["message"]) for item in body["messages"]]
        numbers = self.namespace.schedule(self.entity, messages)
        cost = self.namespace.catalog.entity(self.entity).send_credits
        self.end.throttle.charge(cost * len(messages))
        return 200, {"sequence-numbers": Array(numbers, 0x81)}

    def cancel(self, request: Request, body: dict[Any, Any]) -> Result:
        """Cancel scheduled messages."""
        numbers = [int(number) for number in body["sequence-numbers"]]
        self.namespace.cancel_scheduled(self.entity, numbers)
        return 200, {}

    def receive_deferred(self, request: Request, body: dict[Any, Any]) -> Result:
        """Lock, or receive and delete, deferred messages by number."""
        found = self.namespace.receivers.take_deferred(
            self.entity,
            [int(number) for number in body["sequence-numbers"]],
            receive_and_delete=int(body.get("receiver-settle-mode", 1)) == 0,
            session_id=_optional(body, "session-id"),
        )
        self.end.throttle.charge(MESSAGE * len(found))
        return 200, {"messages": [_with_token(delivery) for delivery in found]}

    def update_disposition(self, request: Request, body: dict[Any, Any]) -> Result:
        """Settle by lock token."""
        try:
            outcome = _OUTCOMES[str(body["disposition-status"]).lower()]
        except KeyError:
            raise ArgumentError("The disposition status is not known.") from None
        session_id = _optional(body, "session-id")
        changes = body.get("properties-to-modify")
        lost = self.namespace.update_disposition(
            self.entity,
            _tokens(body["lock-tokens"]),
            outcome,
            reason=_optional(body, "deadletter-reason"),
            description=_optional(body, "deadletter-description"),
            properties={str(k): v for k, v in changes.items()} if changes else None,
            session_id=session_id,
        )
        if lost and session_id is not None:
            raise SessionLockLostError(f"The lock of the session '{session_id}' is lost.")
        if lost:
            raise MessageLockLostError(LOCK_LOST)
        return 200, {}

    def delete_messages(self, request: Request, body: dict[Any, Any]) -> Result:
        """Delete messages without receiving them."""
        deleted = self.namespace.delete_messages(
            self.entity,
            _count(body, _MAX_DELETE),
            int(body["enqueued-time-utc"]),
            session_id=_optional(body, "session-id"),
        )
        self.end.throttle.charge(MESSAGE * deleted)
        return (200, {"message-count": Int(deleted)}) if deleted else (204, None)

    def renew_lock(self, request: Request, body: dict[Any, Any]) -> Result:
        """Extend locks of messages."""
        tokens = _tokens(body["lock-tokens"])
        ends = self.namespace.renew_lock(self.entity, tokens)
        return 200, {"expirations": Array([Timestamp(end) for end in ends], 0x83)}

    def renew_session(self, request: Request, body: dict[Any, Any]) -> Result:
        """Extend the lock of a session."""
        end = self.namespace.receivers.renew_session(self.entity, self._session(request, body))
        return 200, {"expiration": Timestamp(end)}

    def get_session_state(self, request: Request, body: dict[Any, Any]) -> Result:
        """Return the state of a session."""
        session_id = self._session(request, body)
        return 200, {
            "session-state": self.namespace.receivers.session_state(self.entity, session_id)
        }

    def set_session_state(self, request: Request, body: dict[Any, Any]) -> Result:
        """Set the state of a session."""
        state = body.get("session-state")
        if state is not None and not isinstance(state, bytes):
            state = str(state).encode()
        self.namespace.receivers.set_session_state(self.entity, self._session(request, body), state)
        return 200, {}

    def list_sessions(self, request: Request, body: dict[Any, Any]) -> Result:
        """List the sessions with messages, or with a state set since a time."""
        since = body.get("last-updated-time")
        top = int(body.get("top", 100))
        skip = int(body.get("skip", 0))
        found = self.namespace.receivers.list_sessions(
            self.entity,
            updated_since=None if since is None or since >= _MAX_TIMESTAMP else int(since),
            skip=skip,
            top=top,
        )
        if not found:
            return 204, None
        return 200, {"skip": skip + len(found), "sessions-ids": Array(found, 0xB1)}

    def _session(self, request: Request, body: dict[Any, Any]) -> str:
        """Return the session that a request names, if this connection's link holds it."""
        session_id = str(body["session-id"])
        name = request.properties.get("associated-link-name")
        link = self.end.connection.links.receiver_named(str(name)) if name is not None else None
        if name is not None and link is None:
            raise SessionLockLostError(
                f"The lock of the session '{session_id}' has expired: accept it again."
            )
        return session_id


Operation = Callable[[ManagementNode, Request, dict[Any, Any]], Result]
_LISTEN, _SEND = AccessRight.LISTEN, AccessRight.SEND
#: By name: the right that an operation needs, the name under which it is throttled, and its code.
_OPERATIONS: dict[str, tuple[AccessRight, str | None, Operation]] = {
    "peek-message": (_LISTEN, "peek", ManagementNode.peek),
    "schedule-message": (_SEND, "schedule", ManagementNode.schedule),
    "cancel-scheduled-message": (_SEND, None, ManagementNode.cancel),
    "receive-by-sequence-number": (_LISTEN, "deferred", ManagementNode.receive_deferred),
    "update-disposition": (_LISTEN, None, ManagementNode.update_disposition),
    "batch-delete-messages": (_LISTEN, "receive", ManagementNode.delete_messages),
    "renew-lock": (_LISTEN, None, ManagementNode.renew_lock),
    "renew-session-lock": (_LISTEN, None, ManagementNode.renew_session),
    "get-session-state": (_LISTEN, None, ManagementNode.get_session_state),
    "set-session-state": (_LISTEN, None, ManagementNode.set_session_state),
    "get-message-sessions": (_LISTEN, None, ManagementNode.list_sessions),
    "enumerate-rules": (_LISTEN, "admin", enumerate_rules),
    "add-rule": (_LISTEN, "admin", add_rule),
    "remove-rule": (_LISTEN, "admin", remove_rule),
}
_OUTCOMES = {
    "completed": Outcome.COMPLETE,
    "abandoned": Outcome.ABANDON,
    "defered": Outcome.DEFER,
    "suspended": Outcome.DEAD_LETTER,
}


def _optional(body: dict[Any, Any], name: str) -> str | None:
    value = body.get(name)
    return None if value is None else str(value)


def _count(body: dict[Any, Any], limit: int) -> int:
    """The number of messages that a request asks for, at most *limit*."""
    count = int(body["message-count"])
    if count < 1:
        raise ArgumentError("message-count must be at least 1.")
    return min(count, limit)


def _tokens(values: Any) -> list[bytes]:
    if isinstance(values, Uuids):
        return values.little_endian()
    return [
        value.bytes_le if isinstance(value, uuid.UUID) else uuid.UUID(str(value)).bytes_le
        for value in values
    ]


def _with_token(delivery: Delivery) -> dict[str, Any]:
    shown: dict[str, Any] = {"message": render_delivery(delivery)}
    if delivery.lock_token:
        shown["lock-token"] = uuid.UUID(bytes_le=delivery.lock_token)
    return shown
