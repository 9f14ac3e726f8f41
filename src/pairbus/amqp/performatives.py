"""The performatives and their parts, in the order and with the names of the specification.

Part 2 (transport), part 3 (messaging: termini and outcomes) and part 4 (transactions: only the
types that a container needs in order to refuse them by name). SASL is in `pairbus.amqp.sasl`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from pairbus.amqp.composite import Composite, composite
from pairbus.amqp.errors import AmqpError

# Settlement modes (part 2, sections 2.8.2 and 2.8.3) and roles (2.8.1).
SND_UNSETTLED, SND_SETTLED, SND_MIXED = 0, 1, 2
RCV_FIRST, RCV_SECOND = 0, 1
ROLE_SENDER, ROLE_RECEIVER = False, True


@composite(0x1D, "amqp:error:list", "symbol! string fields")
class Error(Composite):
    """Part 2, section 2.8.14; `info` is always written, because the SDK reads it unchecked."""

    condition: str
    description: str | None = None
    info: dict[Any, Any] | None = field(default_factory=dict)

    @classmethod
    def of(cls, exc: AmqpError) -> Error:
        """Return the error that carries `exc` over the wire."""
        return cls(exc.condition, exc.description, dict(exc.info))


@composite(
    0x10, "amqp:open:list", "string! string uint ushort uint symbol* symbol* symbol* symbol* fields"
)
class Open(Composite):
    """Part 2, section 2.7.1: negotiate connection parameters."""

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


@composite(0x11, "amqp:begin:list", "ushort uint! uint! uint! uint symbol* symbol* fields")
class Begin(Composite):
    """Part 2, section 2.7.2: begin a session on a channel."""

    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int = 0xFFFFFFFF
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: dict[Any, Any] | None = None


@composite(
    0x12,
    "amqp:attach:list",
    "string! uint! boolean! ubyte ubyte source target map boolean uint ulong"
    " symbol* symbol* fields",
)
class Attach(Composite):
    """Part 2, section 2.7.3: attach a link to a session."""

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


@composite(
    0x13, "amqp:flow:list", "uint uint! uint! uint! uint uint uint uint boolean boolean fields"
)
class Flow(Composite):
    """Part 2, section 2.7.4: update session windows and link credit."""

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


@composite(
    0x14,
    "amqp:transfer:list",
    "uint! uint binary uint boolean boolean ubyte any boolean boolean boolean",
)
class Transfer(Composite):
    """Part 2, section 2.7.5: transfer a message; the payload follows in the frame."""

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


@composite(0x15, "amqp:disposition:list", "boolean! uint! uint boolean any boolean")
class Disposition(Composite):
    """Part 2, section 2.7.6: report the state of deliveries."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


@composite(0x16, "amqp:detach:list", "uint! boolean error")
class Detach(Composite):
    """Part 2, section 2.7.7: detach a link from its session."""

    handle: int
    closed: bool = False
    error: Error | None = None


@composite(0x17, "amqp:end:list", "error")
class End(Composite):
    """Part 2, section 2.7.8: end a session."""

    error: Error | None = None


@composite(0x18, "amqp:close:list", "error")
class Close(Composite):
    """Part 2, section 2.7.9: close the connection."""

    error: Error | None = None


@composite(0x23, "amqp:received:list", "uint! ulong!")
class Received(Composite):
    """Part 3, section 3.4.1: the part of a delivery that was received."""

    section_number: int
    section_offset: int


@composite(0x24, "amqp:accepted:list")
class Accepted(Composite):
    """Part 3, section 3.4.2: processed successfully."""


@composite(0x25, "amqp:rejected:list", "error")
class Rejected(Composite):
    """Part 3, section 3.4.3: invalid and unprocessable."""

    error: Error | None = None


@composite(0x26, "amqp:released:list")
class Released(Composite):
    """Part 3, section 3.4.4: not (and will not be) acted upon."""


@composite(0x27, "amqp:modified:list", "boolean boolean fields")
class Modified(Composite):
    """Part 3, section 3.4.5: modified, but not acted upon."""

    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: dict[Any, Any] | None = None


@composite(
    0x28,
    "amqp:source:list",
    "any uint symbol uint boolean fields symbol fields any symbol* symbol*",
)
class Source(Composite):
    """Part 3, section 3.5.3: where messages come from."""

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


@composite(0x29, "amqp:target:list", "any uint symbol uint boolean fields symbol*")
class Target(Composite):
    """Part 3, section 3.5.4: where messages go."""

    address: Any = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    capabilities: list[str] | None = None


@composite(0x30, "amqp:coordinator:list", "symbol*")
class Coordinator(Composite):
    """Part 4, section 4.5.1: the target of a link that controls transactions."""

    capabilities: list[str] | None = None


ACCEPTED = Accepted()
RELEASED = Released()
