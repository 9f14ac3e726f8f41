"""SASL (part 5, section 5.3): the performatives, and the mechanisms of a client.

No mechanism with challenges is supported: `SaslChallenge` and `SaslResponse` are only decoded, to
be refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pairbus.amqp.composite import Composite, register
from pairbus.amqp.errors import decode_error

OK, AUTH, SYS, SYS_PERM, SYS_TEMP = range(5)
"""Outcome codes (part 5, section 5.3.3.6)."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism, and the initial response of a client that uses it."""

    name: str
    initial_response: bytes | None = field(default=None, repr=False)


ANONYMOUS = Mechanism("ANONYMOUS", b"")
EXTERNAL = Mechanism("EXTERNAL", b"")


def read_plain(response: bytes | None) -> tuple[str, str, str]:
    """Return the identity to act as, the user and the password of a PLAIN response.

    Raises:
        ProtocolError: the response does not have three parts.
    """
    try:
        authorize_as, user, password = (response or b"").decode().split("\0")
    except ValueError as exc:
        raise decode_error("the PLAIN response does not have three parts") from exc
    return authorize_as, user, password


@register
@dataclass(slots=True)
class SaslMechanisms(Composite):
    """Part 5, section 5.3.3.1: the mechanisms that the server offers."""

    CODE: ClassVar[int] = 0x40
    NAME: ClassVar[str] = "amqp:sasl-mechanisms:list"
    WIRE: ClassVar[str] = "symbol*!"
    sasl_server_mechanisms: list[str]


@register
@dataclass(slots=True)
class SaslInit(Composite):
    """Part 5, section 5.3.3.2: the mechanism that the client chose."""

    CODE: ClassVar[int] = 0x41
    NAME: ClassVar[str] = "amqp:sasl-init:list"
    WIRE: ClassVar[str] = "symbol! binary string"
    mechanism: str
    initial_response: bytes | None = field(default=None, repr=False)  # may hold a password
    hostname: str | None = None


@register
@dataclass(slots=True)
class SaslChallenge(Composite):
    """Part 5, section 5.3.3.3."""

    CODE: ClassVar[int] = 0x42
    NAME: ClassVar[str] = "amqp:sasl-challenge:list"
    WIRE: ClassVar[str] = "binary!"
    challenge: bytes = field(repr=False)


@register
@dataclass(slots=True)
class SaslResponse(Composite):
    """Part 5, section 5.3.3.4."""

    CODE: ClassVar[int] = 0x43
    NAME: ClassVar[str] = "amqp:sasl-response:list"
    WIRE: ClassVar[str] = "binary!"
    response: bytes = field(repr=False)


@register
@dataclass(slots=True)
class SaslOutcome(Composite):
    """Part 5, section 5.3.3.5; `code`: 0 ok, 1 auth, 2 sys, 3 sys-perm, 4 sys-temp."""

    CODE: ClassVar[int] = 0x44
    NAME: ClassVar[str] = "amqp:sasl-outcome:list"
    WIRE: ClassVar[str] = "ubyte! binary"
    code: int
    additional_data: bytes | None = None
