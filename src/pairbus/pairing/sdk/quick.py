"""A plain message, in a batch or as it waits in a backlog queue, at a fraction of the SDK's price.

The SDK takes tens of microseconds to write a message, and writes one that goes into a batch twice.
While failed over each send carries one application property more than the application gave it,
which costs as much again as half of the rest. A message that has nothing but strings in its
properties and bytes in its body is written here instead: the very same bytes as the SDK would
write, which the tests compare. For any other message the answer is None, and it goes the long way.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.envelope.aliases import PATH, SESSION_ID, check_reserved, has_nothing

__all__ = ["encode_plain", "encode_wrapped"]

# The fields of the properties section in their order, and how the SDK writes text in them. A field
# that is no text (a user id, a time, a number) sends the message the long way.
_STRING: Final = (b"\xa1", b"\xb1")
_SYMBOL: Final = (b"\xa3", b"\xb3")
_FIELDS: Final = (
    ("message_id", _STRING),
    ("user_id", None),
    ("to", _STRING),
    ("subject", _STRING),
    ("reply_to", _STRING),
    ("correlation_id", _STRING),
    ("content_type", _SYMBOL),
    ("content_encoding", _SYMBOL),
    ("absolute_expiry_time", None),
    ("creation_time", None),
    ("group_id", _STRING),
    ("group_sequence", None),
    ("reply_to_group_id", _STRING),
)
_NULL: Final = b"\x40"


def _written(text: str, codes: tuple[bytes, bytes]) -> bytes:
    data = text.encode()
    size = len(data)
    if size < 256:
        return codes[0] + size.to_bytes(1) + data
    return codes[1] + size.to_bytes(4) + data


@functools.lru_cache(maxsize=1024)
def _path(path: str) -> bytes:
    return _written(PATH, _STRING) + _written(path, _STRING)


def _compound(codes: tuple[bytes, bytes], count: int, content: bytes) -> bytes:
    size = len(content)
    if count < 256 and size < 255:
        return codes[0] + (size + 1).to_bytes(1) + count.to_bytes(1) + content
    return codes[1] + (size + 4).to_bytes(4) + count.to_bytes(4) + content


def encode_wrapped(raw: AmqpAnnotatedMessage, path: str) -> bytes | None:
    """`raw`, which has an id, as it waits for `path`; None if it is not plain enough.

    Raises:
        ReservedPropertyError: if the message uses one of the aliases' names itself.
    """
    return _encode(raw, path)


def encode_plain(raw: AmqpAnnotatedMessage) -> bytes | None:
    """`raw` as it is; None if it has no id or is not plain enough.

    Raises:
        ReservedPropertyError: if the message uses one of the aliases' names itself.
    """
    properties = raw.properties
    if properties is None or not properties.message_id:
        return None
    return _encode(raw, None)


def _encode(raw: AmqpAnnotatedMessage, path: str | None) -> bytes | None:
    fields = raw.__dict__
    data = fields.get("_data_body")
    properties = raw.properties
    header = raw.header
    if (
        data.__class__ is not list
        or properties is None
        or raw.annotations
        or raw.delivery_annotations
        or raw.footer
        or (header is not None and not has_nothing(header))
    ):
        return None
    values = properties.__dict__
    found: list[bytes] = []
    try:
        for name, codes in _FIELDS:
            value = values[name]
            if value is None or (path is not None and name == "group_id"):  # it gets an alias
                found.append(_NULL)
            elif value.__class__ is str and codes is not None:
                found.append(_written(value, codes))
            else:
                return None
        session = values["group_id"]
    except KeyError:
        return None  # the SDK's object looks other than we know it
    names = raw.application_properties
    entries = b""
    count = 0
    if names:
        check_reserved(names)
        for key, text in names.items():
            if key.__class__ is not str or text.__class__ is not str:
                return None
            entries += _written(key, _STRING) + _written(text, _STRING)
        count = 2 * len(names)
    if path is not None:
        entries += _path(path)
        count += 2
        if session is not None:
            if session.__class__ is not str:
                return None
            entries += _written(SESSION_ID, _STRING) + _written(session, _STRING)
            count += 2
    parts: list[Any] = [
        b"\x00\x53\x73",
        _compound((b"\xc0", b"\xd0"), len(found), b"".join(found)),
    ]
    if count:
        parts += (b"\x00\x53\x74", _compound((b"\xc1", b"\xd1"), count, entries))
    for section in data:
        size = len(section)
        if section.__class__ is not bytes:
            return None
        if size < 256:
            parts += (b"\x00\x53\x75\xa0", size.to_bytes(1), section)
        else:
            parts += (b"\x00\x53\x75\xb0", size.to_bytes(4), section)
    return b"".join(parts)
