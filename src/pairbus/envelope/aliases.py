"""Encoded messages of a batch, wrapped for a backlog queue."""

from __future__ import annotations

import functools
import time
from dataclasses import replace
from typing import Any, Final

from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.amqp.encoder import encode
from pairbus.amqp.message import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    Message,
    Properties,
    section_at,
)
from pairbus.amqp.types import Long, Timestamp
from pairbus.envelope.fields import (
    ALIASES,
    PATH,
    RESERVED,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    TIME_TO_LIVE,
)
from pairbus.envelope.sdk import SdkMessage, annotated, check_reserved
from pairbus.envelope.sdk import is_empty as has_nothing
from pairbus.envelope.sdk import wrap as wrap_message

__all__ = [
    "ALIASES",
    "PATH",
    "RESERVED",
    "SESSION_ID",
    "SdkMessage",
    "annotated",
    "check_reserved",
    "has_nothing",
    "wrap",
    "wrap_encoded",
    "wrap_plain",
]

_X_OPT_SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
_SHORT_PROPERTIES: Final = b"\x00\x53\x73\xc0"  # a properties section of less than 256 bytes
_DATA: Final = b"\x00\x53\x75"


def wrap(message: SdkMessage, path: str) -> AmqpAnnotatedMessage:
    """A copy of `message` that waits in a backlog queue for `path`."""
    return wrap_message(message, path, now=int(time.time() * 1000))


def wrap_encoded(payload: bytes, path: str) -> tuple[bytes, Any, str | None]:
    """An encoded message as it waits in a backlog queue for `path`, its id, and its session.

    Raises:
        ReservedPropertyError: if the message uses one of the aliases' names itself.
    """
    message = Message.parse(payload)
    names = message.application_properties or {}
    check_reserved(names)
    aliases: dict[Any, Any] = {PATH: path}
    changes: dict[str, Any] = {}

    properties = message.properties or Properties()
    header = message.header
    changed = properties
    session: str | None = None
    if properties.group_id is not None:
        session = aliases[SESSION_ID] = str(properties.group_id)
        changed = replace(changed, group_id=None)
    if header is not None and header.ttl:
        aliases[TIME_TO_LIVE] = Long(header.ttl)
        changes["header"] = replace(header, ttl=None)
        changed = replace(changed, absolute_expiry_time=None)
    annotations = message.message_annotations or {}
    if annotations.get(_X_OPT_SCHEDULED) is not None:
        aliases[SCHEDULED_ENQUEUE_TIME] = Timestamp(int(annotations[_X_OPT_SCHEDULED]))
        kept = {key: value for key, value in annotations.items() if key != _X_OPT_SCHEDULED}
        changes["message_annotations"] = kept or None
    if changed is not properties:
        changes["properties"] = changed
    changes["application_properties"] = {**names, **aliases}
    return message.replace(**changes).encode(), properties.message_id, session


def wrap_plain(payload: bytes, path: str) -> bytes:
    """As `wrap_encoded`, for a message that is known to have no session and no reserved names.

    If it has no header and no annotations either, only its application properties change: one
    entry is added, and everything else is the same bytes.
    """
    if payload[:4] == _SHORT_PROPERTIES:
        at = 5 + payload[4]
        if payload[at : at + 3] == _DATA:  # most messages: properties, then the body
            return b"".join((payload[:at], _path_section(path), payload[at:]))
    at = 0
    if not payload:  # the SDK writes no body where its value is empty
        return _path_section(path)
    code, start, end = section_at(payload, 0)
    if code == PROPERTIES:
        at = end
        if at == len(payload):
            return payload + _path_section(path)
        code, start, end = section_at(payload, at)
    if code < PROPERTIES:
        return wrap_encoded(payload, path)[0]
    if code != APPLICATION_PROPERTIES:
        return b"".join((payload[:at], _path_section(path), payload[at:]))
    kind = payload[start]
    if kind == 0xC1:
        count, first = payload[start + 2], start + 3
    elif kind == 0xD1:
        count, first = int.from_bytes(payload[start + 5 : start + 9]), start + 9
    else:
        return wrap_encoded(payload, path)[0]
    section = _new_section(count + 2, payload[first:end] + _path_entry(path))
    return b"".join((payload[:at], section, payload[end:]))


@functools.lru_cache(maxsize=1024)
def _path_entry(path: str) -> bytes:
    return encode(PATH) + encode(path)


@functools.lru_cache(maxsize=1024)
def _path_section(path: str) -> bytes:
    return _new_section(2, _path_entry(path))


def _new_section(count: int, entries: bytes) -> bytes:
    head = b"\x00\x53\x74\xd1"
    return head + (len(entries) + 4).to_bytes(4) + count.to_bytes(4) + entries
