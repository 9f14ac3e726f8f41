"""Fences and their answers as messages of azure-servicebus; see `pairbus.envelope.fence`."""

from __future__ import annotations

from typing import Any, NamedTuple

from azure.servicebus import ServiceBusMessage

from pairbus.envelope.fence import (
    ANSWER_CONTENT_TYPE,
    FENCE_CONTENT_TYPE,
    RELEASE_CONTENT_TYPE,
)


class Answer(NamedTuple):
    """A message of the reply queue, in the session of one client.

    `fence` is the id of the fence that was answered; empty for an operator's release of `entity`.
    """

    entity: str
    fence: str
    syphon: str


def fence_message(fence: str, destination: str, reply_queue: str, session: str) -> Any:
    """A fence for a backlog queue."""
    return ServiceBusMessage(
        b"",
        content_type=FENCE_CONTENT_TYPE,
        message_id=fence,
        to=destination,
        reply_to=reply_queue,
        reply_to_session_id=session,
    )


def release_message(entity: str, session: str) -> Any:
    """The message with which an operator ends a client's wait for the fences of this entity."""
    return ServiceBusMessage(b"", content_type=RELEASE_CONTENT_TYPE, to=entity, session_id=session)


def read_answer(message: Any) -> Answer | None:
    """Read a message of the reply queue; None if it is no answer."""
    kind, entity = _text(message.content_type), _text(message.to)
    if kind == RELEASE_CONTENT_TYPE and entity:
        return Answer(entity, "", "")
    fence = _text(message.correlation_id)
    if kind == ANSWER_CONTENT_TYPE and entity and fence:
        return Answer(entity, fence, _text(message.subject))
    return None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
