"""How a connection starts: protocol headers and SASL (part 2, section 2.2, and part 5)."""

from __future__ import annotations

from pairbus.amqp import sasl as sasl_codes
from pairbus.amqp.actions import Actions
from pairbus.amqp.base import Phase, Role
from pairbus.amqp.composite import decode_composite
from pairbus.amqp.errors import FRAMING_ERROR, NOT_ALLOWED, UNAUTHORIZED_ACCESS, ProtocolError
from pairbus.amqp.events import Event, SaslDone, SaslInitReceived
from pairbus.amqp.frames import AMQP_HEADER, SASL_HEADER, sasl_frame
from pairbus.amqp.performatives import (
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)


class Handshake(Actions):
    """The start; see `Connection`."""

    def _on_header(self, header: bytes) -> None:
        if header[:4] != b"AMQP" or header[5:] != b"\x01\x00\x00":
            self._out.append(SASL_HEADER if self._require_sasl else AMQP_HEADER)
            raise ProtocolError(FRAMING_ERROR, "no AMQP 1.0 protocol header")
        protocol = header[4]
        if self.role is Role.CLIENT:
            expected = 0 if self._is_sasl_done else 3
            if protocol != expected:
                raise ProtocolError(FRAMING_ERROR, f"the peer answered with protocol {protocol}")
            self.phase = Phase.FRAMES if self._is_sasl_done else Phase.SASL
        elif protocol == 3 and not self._is_sasl_done:
            self._out.append(SASL_HEADER)
            self._out.append(sasl_frame(SaslMechanisms(self._mechanisms).encode()))
            self.phase = Phase.SASL
        elif protocol == 0 and (self._is_sasl_done or not self._require_sasl):
            self._out.append(AMQP_HEADER)
            self.phase = Phase.FRAMES
        else:
            self._out.append(SASL_HEADER if self._require_sasl else AMQP_HEADER)
            raise ProtocolError(FRAMING_ERROR, f"protocol {protocol} is not on offer")

    def _on_sasl(self, body: bytes, events: list[Event]) -> None:
        performative, end = decode_composite(body)
        if end != len(body):
            raise ProtocolError(FRAMING_ERROR, "bytes after a SASL performative")
        if self.role is Role.SERVER:
            if isinstance(performative, SaslInit) and self._sasl_init is None:
                self._sasl_init = performative
                if performative.mechanism not in self._mechanisms:
                    self.sasl_outcome(sasl_codes.AUTH)
                    raise ProtocolError(UNAUTHORIZED_ACCESS, "the SASL mechanism is not on offer")
                if performative.mechanism == "ANONYMOUS":
                    self.sasl_outcome(sasl_codes.OK)
                    events.append(SaslDone("ANONYMOUS"))
                else:
                    events.append(SaslInitReceived(performative))
                return
            if isinstance(performative, SaslResponse):
                raise ProtocolError(NOT_ALLOWED, "no challenge was sent")
        elif isinstance(performative, SaslMechanisms) and self._sasl is not None:
            if self._sasl.name not in performative.sasl_server_mechanisms:
                raise ProtocolError(
                    UNAUTHORIZED_ACCESS, f"the peer does not offer SASL {self._sasl.name}"
                )
            init = SaslInit(self._sasl.name, self._sasl.initial_response, self.hostname)
            self._out.append(sasl_frame(init.encode()))
            return
        elif isinstance(performative, SaslOutcome) and self._sasl is not None:
            if performative.code != sasl_codes.OK:
                raise ProtocolError(
                    UNAUTHORIZED_ACCESS, f"SASL failed with code {performative.code}"
                )
            self._is_sasl_done = True
            self.phase = Phase.AMQP_HEADER
            self._out.append(AMQP_HEADER)
            self._out.extend(self._held or ())
            self._held = None
            events.append(SaslDone(self._sasl.name))
            return
        elif isinstance(performative, SaslChallenge):
            raise ProtocolError(NOT_ALLOWED, "this mechanism has no challenges")
        raise ProtocolError(NOT_ALLOWED, "unexpected frame in the SASL exchange")

    def sasl_outcome(self, code: int) -> None:
        """Server: answer `SaslInitReceived`; 0 lets the client in, anything else does not."""
        self._out.append(sasl_frame(SaslOutcome(code).encode()))
        if code == sasl_codes.OK:
            self._is_sasl_done = True
            self.phase = Phase.AMQP_HEADER
        else:
            self.phase = Phase.CLOSED
