"""SASL (part 5, section 5.3): the performatives, and the mechanisms of a client.

No mechanism with challenges is supported, so a challenge or a response is refused as a frame that
is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pairbus.amqp.composite import Composite, composite
from pairbus.amqp.errors import decode_error

OK, AUTH = 0, 1
"""Outcome codes (part 5, section 5.3.3.6)."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism, and the initial response of a client that uses it."""

    name: str
    initial_response: bytes | None = field(default=None, repr=False)


ANONYMOUS = Mechanism("ANONYMOUS", b"")


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


@composite(0x40, "amqp:sasl-mechanisms:list", "symbol*!")
class SaslMechanisms(Composite):
    """Part 5, section 5.3.3.1: the mechanisms that the server offers."""

    sasl_server_mechanisms: list[str]


@composite(0x41, "amqp:sasl-init:list", "symbol! binary string")
class SaslInit(Composite):
    """Part 5, section 5.3.3.2: the mechanism that the client chose."""

    mechanism: str
    initial_response: bytes | None = field(default=None, repr=False)  # may hold a password
    hostname: str | None = None


@composite(0x44, "amqp:sasl-outcome:list", "ubyte! binary")
class SaslOutcome(Composite):
    """Part 5, section 5.3.3.5; `code`: 0 ok, 1 auth, 2 sys, 3 sys-perm, 4 sys-temp."""

    code: int
    additional_data: bytes | None = None
