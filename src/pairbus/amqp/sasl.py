"""SASL mechanisms (part 5, section 5.3): what a client answers, and how a server reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pairbus.amqp.errors import decode_error

OK, AUTH, SYS, SYS_PERM, SYS_TEMP = range(5)
"""Outcome codes (part 5, section 5.3.3.6)."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism with what a client says first when it uses it."""

    name: str
    initial_response: bytes | None = field(default=None, repr=False)


ANONYMOUS = Mechanism("ANONYMOUS", b"")
EXTERNAL = Mechanism("EXTERNAL", b"")


def plain(user: str, password: str, authorize_as: str = "") -> Mechanism:
    """PLAIN (RFC 4616): for encrypted connections only."""
    return Mechanism("PLAIN", "\0".join((authorize_as, user, password)).encode())


def read_plain(response: bytes | None) -> tuple[str, str, str]:
    """The identity to act as, the user and the password of a PLAIN response."""
    try:
        authorize_as, user, password = (response or b"").decode().split("\0")
    except ValueError as exc:
        raise decode_error("the PLAIN response has no three parts") from exc
    return authorize_as, user, password
