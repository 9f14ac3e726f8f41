"""The performatives and their parts, in the order and with the names of the specification.

Part 2 (transport), part 3 (messaging: termini and outcomes) and part 4 (transactions: only the
types that a container needs in order to refuse them by name). SASL is in `pairbus.amqp.sasl`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pairbus.amqp.composite import Composite, register
from pairbus.amqp.errors import AmqpError

# Settlement modes (part 2, sections 2.8.2 and 2.8.3) and roles (2.8.1).
SND_UNSETTLED, SND_SETTLED, SND_MIXED = 0, 1, 2
RCV_FIRST, RCV_SECOND = 0, 1
ROLE_SENDER, ROLE_RECEIVER = False, True


@register
@dataclass(slots=True)
class Error(Composite):
    """Part 2, section 2.8.14; `info` is always written, because the SDK reads it unchecked."""

    CODE: ClassVar[int] = 0x1D
    NAME: ClassVar[str] = "amqp:error:list"
    WIRE: ClassVar[str] = "symbol! string fields"
    condition: str
    description: str | None = None
    info: dict[Any, Any] | None = field(default_factory=dict)

    @classmethod
    def of(cls, exc: AmqpError) -> Error:
        """Return the error that carries `exc` over the wire."""
        return cls(exc.condition, exc.description, dict(exc.info))


@register
@dataclass(slots=True)
class Open(Composite):
    """Part 2, section 2.7.1: negotiate connection parameters."""

    CODE: ClassVar[int] = 0x10
    NAME: ClassVar[str] = "amqp:open:list"
    WIRE: ClassVar[str] = "string! string uint ushort uint symbol* symbol* symbol* symbol* fields"
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 0xFFFFFFFF
    channel_max: int = 0xFFFF
    idle_time_out: int | None = None
    outgoing_locales: list[str] | None = None
    incoming_locales: list[str] | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: dict[Any, Any] | None = None


@register
@dataclass(slots=True)
class Begin(Composite):
    """Part 2, section 2.7.2: begin a session on a channel."""

    CODE: ClassVar[int] = 0x11
    NAME: ClassVar[str] = "amqp:begin:list"
    WIRE: ClassVar[str] = "ushort uint! uint! uint! uint symbol* symbol* fields"
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int = 0xFFFFFFFF
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: dict[Any, Any] | None = None


@register
@dataclass(slots=True)
class Attach(Composite):
    """Part 2, section 2.7.3: attach a link to a session."""

    CODE: ClassVar[int] = 0x12
    NAME: ClassVar[str] = "amqp:attach:list"
    WIRE: ClassVar[str] = (
        "string! uint! boolean! ubyte ubyte source target map boolean uint ulong"
        " symbol* symbol* fields"
    )
    name: str
    handle: int
    role: bool
    snd_settle_mode: int = SND_MIXED
    rcv_settle_mode: int = RCV_FIRST
    source: Any = None
    target: Any = None
    unsettled: dict[Any, Any] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: dict[Any, Any] | None = None


@register
@dataclass(slots=True)
class Flow(Composite):
    """Part 2, section 2.7.4: update session windows and link credit."""

    CODE: ClassVar[int] = 0x13
    NAME: ClassVar[str] = "amqp:flow:list"
    WIRE: ClassVar[str] = "uint uint! uint! uint! uint uint uint uint boolean boolean fields"
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: dict[Any, Any] | None = None


@register
@dataclass(slots=True)
class Transfer(Composite):
    """Part 2, section 2.7.5: transfer a message; the payload follows in the frame."""

    CODE: ClassVar[int] = 0x14
    NAME: ClassVar[str] = "amqp:transfer:list"
    WIRE: ClassVar[str] = "uint! uint binary uint boolean boolean ubyte any boolean boolean boolean"
    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@register
@dataclass(slots=True)
class Disposition(Composite):
    """Part 2, section 2.7.6: report the state of deliveries."""

    CODE: ClassVar[int] = 0x15
    NAME: ClassVar[str] = "amqp:disposition:list"
    WIRE: ClassVar[str] = "boolean! uint! uint boolean any boolean"
    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


@register
@dataclass(slots=True)
class Detach(Composite):
    """Part 2, section 2.7.7: detach a link from its session."""

    CODE: ClassVar[int] = 0x16
    NAME: ClassVar[str] = "amqp:detach:list"
    WIRE: ClassVar[str] = "uint! boolean error"
    handle: int
    closed: bool = False
    error: Error | None = None


@register
@dataclass(slots=True)
class End(Composite):
    """Part 2, section 2.7.8: end a session."""

    CODE: ClassVar[int] = 0x17
    NAME: ClassVar[str] = "amqp:end:list"
    WIRE: ClassVar[str] = "error"
    error: Error | None = None


@register
@dataclass(slots=True)
class Close(Composite):
    """Part 2, section 2.7.9: close the connection."""

    CODE: ClassVar[int] = 0x18
    NAME: ClassVar[str] = "amqp:close:list"
    WIRE: ClassVar[str] = "error"
    error: Error | None = None


@register
@dataclass(slots=True)
class Received(Composite):
    """Part 3, section 3.4.1: the part of a delivery that was received."""

    CODE: ClassVar[int] = 0x23
    NAME: ClassVar[str] = "amqp:received:list"
    WIRE: ClassVar[str] = "uint! ulong!"
    section_number: int
    section_offset: int


@register
@dataclass(slots=True)
class Accepted(Composite):
    """Part 3, section 3.4.2: processed successfully."""

    CODE: ClassVar[int] = 0x24
    NAME: ClassVar[str] = "amqp:accepted:list"
    WIRE: ClassVar[str] = ""


@register
@dataclass(slots=True)
class Rejected(Composite):
    """Part 3, section 3.4.3: invalid and unprocessable."""

    CODE: ClassVar[int] = 0x25
    NAME: ClassVar[str] = "amqp:rejected:list"
    WIRE: ClassVar[str] = "error"
    error: Error | None = None


@register
@dataclass(slots=True)
class Released(Composite):
    """Part 3, section 3.4.4: not (and will not be) acted upon."""

    CODE: ClassVar[int] = 0x26
    NAME: ClassVar[str] = "amqp:released:list"
    WIRE: ClassVar[str] = ""


@register
@dataclass(slots=True)
class Modified(Composite):
    """Part 3, section 3.4.5: modified, but not acted upon."""

    CODE: ClassVar[int] = 0x27
    NAME: ClassVar[str] = "amqp:modified:list"
    WIRE: ClassVar[str] = "boolean boolean fields"
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: dict[Any, Any] | None = None


@register
@dataclass(slots=True)
class Source(Composite):
    """Part 3, section 3.5.3: where messages come from."""

    CODE: ClassVar[int] = 0x28
    NAME: ClassVar[str] = "amqp:source:list"
    WIRE: ClassVar[str] = "any uint symbol uint boolean fields symbol fields any symbol* symbol*"
    address: Any = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    distribution_mode: str | None = None
    filter: dict[Any, Any] | None = None
    default_outcome: Any = None
    outcomes: list[str] | None = None
    capabilities: list[str] | None = None


@register
@dataclass(slots=True)
class Target(Composite):
    """Part 3, section 3.5.4: where messages go."""

    CODE: ClassVar[int] = 0x29
    NAME: ClassVar[str] = "amqp:target:list"
    WIRE: ClassVar[str] = "any uint symbol uint boolean fields symbol*"
    address: Any = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    capabilities: list[str] | None = None


@register
@dataclass(slots=True)
class Coordinator(Composite):
    """Part 4, section 4.5.1: the target of a link that controls transactions."""

    CODE: ClassVar[int] = 0x30
    NAME: ClassVar[str] = "amqp:coordinator:list"
    WIRE: ClassVar[str] = "symbol*"
    capabilities: list[str] | None = None


ACCEPTED = Accepted()
RELEASED = Released()

Outcome = Accepted | Rejected | Released | Modified | Received
