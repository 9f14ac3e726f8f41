"""The AMQP type system (part 1 of the specification) in both directions."""

from pairbus.amqp.decoder import MAX_DEPTH, MAX_EMPTY_ELEMENTS, decode, skip
from pairbus.amqp.encoder import encode

__all__ = ["MAX_DEPTH", "MAX_EMPTY_ELEMENTS", "decode", "encode", "skip"]
