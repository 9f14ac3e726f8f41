"""Frames (part 2, section 2.3) and protocol headers (2.2)."""

from __future__ import annotations

import struct

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

AMQP_FRAME = 0
SASL_FRAME = 1
MIN_MAX_FRAME_SIZE = 512

FRAME_HEADER = struct.Struct(">IBBH")  # size, data offset in words, type, channel
EMPTY_FRAME = FRAME_HEADER.pack(8, 2, AMQP_FRAME, 0)
"""A frame without a body: the heartbeat."""

_pack = FRAME_HEADER.pack


def frame(channel: int, body: bytes) -> bytes:
    """Return an AMQP frame with this body."""
    return _pack(len(body) + 8, 2, AMQP_FRAME, channel) + body


def sasl_frame(body: bytes) -> bytes:
    """Return a SASL frame with this body."""
    return _pack(len(body) + 8, 2, SASL_FRAME, 0) + body
