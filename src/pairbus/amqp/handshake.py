"""The start of a connection: protocol headers and SASL (part 2, section 2.2, and part 5).

Client and server differ in every step, so each has a class. For a protocol header or a SASL frame
both return the phase that follows, and raise `ProtocolError` if the peer is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from pairbus.amqp.composite import Composite, decode_composite
from pairbus.amqp.errors import FRAMING_ERROR, NOT_ALLOWED, UNAUTHORIZED_ACCESS, ProtocolError
from pairbus.amqp.events import Event, SaslDone, SaslInitReceived
from pairbus.amqp.frames import AMQP_HEADER, SASL_HEADER, sasl_frame
from pairbus.amqp.output import OutputBuffer
from pairbus.amqp.sasl import (
    AUTH,
    OK,
    Mechanism,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)


class Role(enum.Enum):
    """Which end of the connection this is."""

    CLIENT = "client"
    SERVER = "server"


class Phase(enum.Enum):
    """The next thing that the connection reads."""

    HEADER = "header"  # the peer's first protocol header
    SASL = "sasl"  # SASL frames
    SASL_DECISION = "sasl-decision"  # nothing, until `sasl_outcome` answers the client
    AMQP_HEADER = "amqp-header"  # the protocol header after SASL
    OPEN = "open"  # the peer's open
    FRAMES = "frames"  # all other AMQP frames
    CLOSED = "closed"  # nothing: the peer closed, or broke the protocol


class ClientHandshake:
    """Speaks first, and names its one SASL mechanism."""

    def __init__(
        self, output: OutputBuffer, *, hostname: str | None, mechanism: Mechanism | None
    ) -> None:
        """Send the first protocol header; `mechanism` None leaves SASL out."""
        self._output = output
        self._hostname = hostname
        self._mechanism = mechanism
        self._expected = AMQP_HEADER if mechanism is None else SASL_HEADER
        output.write_handshake(self._expected)
        if mechanism is not None:
            self._release = output.hold()

    def on_header(self, header: bytes) -> Phase:
        """Take the peer's protocol header: it must be the one that we sent."""
        if header != self._expected:
            raise ProtocolError(
                FRAMING_ERROR, f"the peer answered with the protocol header {header.hex()}"
            )
        return Phase.OPEN if header == AMQP_HEADER else Phase.SASL

    def on_sasl_frame(self, body: bytes, events: list[Event]) -> Phase:
        """Choose the mechanism, or take the outcome."""
        performative = _read_performative(body)
        mechanism = self._mechanism
        if mechanism is not None and isinstance(performative, SaslMechanisms):
            if mechanism.name not in performative.sasl_server_mechanisms:
                raise ProtocolError(
                    UNAUTHORIZED_ACCESS, f"the peer does not offer SASL {mechanism.name}"
                )
            init = SaslInit(mechanism.name, mechanism.initial_response, self._hostname)
            self._output.write_handshake(sasl_frame(init.encode()))
            return Phase.SASL
        if mechanism is not None and isinstance(performative, SaslOutcome):
            if performative.code != OK:
                raise ProtocolError(
                    UNAUTHORIZED_ACCESS, f"SASL failed with code {performative.code}"
                )
            self._expected = AMQP_HEADER
            self._output.write_handshake(AMQP_HEADER)
            self._release()
            events.append(SaslDone(mechanism.name))
            return Phase.AMQP_HEADER
        raise ProtocolError(NOT_ALLOWED, "unexpected frame in the SASL exchange")


class ServerHandshake:
    """Answers, offers mechanisms, and decides."""

    def __init__(
        self, output: OutputBuffer, *, mechanisms: Iterable[str], require_sasl: bool
    ) -> None:
        """Set up; `require_sasl` refuses a client that starts without SASL."""
        self._output = output
        self._mechanisms = list(mechanisms)
        self._require_sasl = require_sasl
        self._init: SaslInit | None = None
        self._is_authenticated = False

    def on_header(self, header: bytes) -> Phase:
        """Answer the client's protocol header, or refuse it with the supported one."""
        if header == SASL_HEADER and not self._is_authenticated:
            self._output.write_handshake(SASL_HEADER)
            self._output.write_handshake(sasl_frame(SaslMechanisms(self._mechanisms).encode()))
            return Phase.SASL
        if header == AMQP_HEADER and (self._is_authenticated or not self._require_sasl):
            self._output.write_handshake(AMQP_HEADER)
            return Phase.OPEN
        self._output.write_handshake(SASL_HEADER if self._require_sasl else AMQP_HEADER)
        raise ProtocolError(FRAMING_ERROR, f"the protocol header {header.hex()} is not on offer")

    def on_sasl_frame(self, body: bytes, events: list[Event]) -> Phase:
        """Take the mechanism that the client chose; ANONYMOUS is accepted without a decision."""
        performative = _read_performative(body)
        if not isinstance(performative, SaslInit) or self._init is not None:
            raise ProtocolError(NOT_ALLOWED, "unexpected frame in the SASL exchange")
        self._init = performative
        if performative.mechanism not in self._mechanisms:
            self.sasl_outcome(AUTH)
            raise ProtocolError(UNAUTHORIZED_ACCESS, "the SASL mechanism is not on offer")
        if performative.mechanism != "ANONYMOUS":
            events.append(SaslInitReceived(performative))
            return Phase.SASL_DECISION
        events.append(SaslDone("ANONYMOUS"))
        return self.sasl_outcome(OK)

    def sasl_outcome(self, code: int) -> Phase:
        """Send the outcome; 0 admits the client, any other code ends the connection."""
        self._output.write_handshake(sasl_frame(SaslOutcome(code).encode()))
        self._is_authenticated = code == OK
        return Phase.AMQP_HEADER if self._is_authenticated else Phase.CLOSED


def _read_performative(body: bytes) -> Composite:
    performative, end = decode_composite(body)
    if end != len(body):
        raise ProtocolError(FRAMING_ERROR, "bytes after a SASL performative")
    return performative  # type: ignore[no-any-return]
