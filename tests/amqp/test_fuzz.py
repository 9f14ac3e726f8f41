"""Whole connections and messages under noise: a protocol error, or what the bytes mean."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.frames import frame
from pairbus.amqp.message import Message, Properties, join_batch, split_batch
from pairbus.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sasl import SaslInit

from .pipe import pair, pump, served
from .strategies import values

pytestmark = pytest.mark.slow

HANDSHAKE = b"AMQP\x03\x01\x00\x00" + bytes.fromhex(
    "00000023" + "02010000" + "005341c01903a309414e4f4e594d4f5553a000a109"
) + b"127.0.0.1"  # fmt: skip
HANDSHAKE = HANDSHAKE[:8] + (len(HANDSHAKE) - 8).to_bytes(4, "big") + HANDSHAKE[12:]
PRELUDE = HANDSHAKE + b"AMQP\x00\x01\x00\x00" + frame(0, Open("c").encode())

small = st.integers(0, 3)
numbers = st.one_of(small, st.integers(0, 2**32 - 1))
performatives = st.one_of(
    st.builds(Begin, st.one_of(st.none(), small), numbers, numbers, numbers),
    st.builds(
        Attach, st.sampled_from(["a", "b"]), small, st.booleans(), small, small,
        st.one_of(st.none(), st.builds(Source, st.text(max_size=3))),
        st.one_of(st.none(), st.builds(Target, st.text(max_size=3))),
    ),
    st.builds(
        Flow, st.one_of(st.none(), numbers), numbers, numbers, numbers,
        st.one_of(st.none(), small), st.one_of(st.none(), numbers), st.one_of(st.none(), numbers),
        st.none(), st.booleans(), st.booleans(),
    ),
    st.builds(
        Transfer, small, st.one_of(st.none(), small), st.one_of(st.none(), st.binary(max_size=3)),
        st.one_of(st.none(), numbers), st.one_of(st.none(), st.booleans()), st.booleans(),
        st.none(), st.none(), st.booleans(), st.booleans(),
    ),
    st.builds(
        Disposition, st.booleans(), numbers, st.one_of(st.none(), numbers), st.booleans(),
        st.sampled_from([None, ACCEPTED, Rejected(Error("x")), Modified(True)]),
    ),
    st.builds(Detach, small, st.booleans()),
    st.builds(End),
    st.builds(Close, st.one_of(st.none(), st.just(Error("amqp:internal-error")))),
    st.builds(Open, st.text(max_size=3)),
    st.builds(SaslInit, st.just("ANONYMOUS")),
)  # fmt: skip


def obliging_server() -> Connection:
    """A server that answers whatever it can."""
    return Connection(Role.SERVER, max_message_size=1000, max_frame_size=4096, channel_max=3)


def feed(connection: Connection, data: bytes) -> None:
    from pairbus.amqp.events import Attached, Begun, Delivery, Opened
    from pairbus.amqp.link import EndState

    for event in connection.receive_data(data):
        match event:
            case Opened():
                connection.open()
            case Begun(session) if session.state is EndState.REMOTE:
                connection.begin(session)
            case Attached(link) if link.state is EndState.REMOTE:
                connection.attach_reply(link)
            case Delivery() if event.link.state is EndState.ACTIVE:
                connection.settle(event.link, event.delivery_id, state=ACCEPTED)
        connection.data_to_send()


@given(st.binary(max_size=300), st.sampled_from([b"", HANDSHAKE, PRELUDE]))
@settings(max_examples=300)
def test_noise_yields_protocol_errors_and_nothing_else(noise, prelude):
    connection = obliging_server()
    with contextlib.suppress(ProtocolError):
        feed(connection, prelude)
        feed(connection, noise)
    connection.data_to_send()


@given(st.lists(st.tuples(small, performatives, st.binary(max_size=20)), max_size=25))
@settings(max_examples=400)
def test_any_order_of_performatives_is_an_answer_or_a_protocol_error(frames):
    connection = obliging_server()
    feed(connection, PRELUDE)
    with contextlib.suppress(ProtocolError):
        for channel, performative, payload in frames:
            tail = payload if isinstance(performative, Transfer) else b""
            feed(connection, frame(channel, performative.encode() + tail))
    connection.data_to_send()


@given(performatives, st.data())
@settings(max_examples=300)
def test_damaged_performatives_yield_protocol_errors(performative, data):
    connection = obliging_server()
    feed(connection, PRELUDE + frame(0, Begin(None, 0, 10, 10).encode()))
    feed(connection, frame(0, Attach("n", 0, False, target=Target("q")).encode()))
    body = bytearray(performative.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        feed(connection, frame(0, bytes(body)))


@given(values, st.sampled_from([Open, Begin, Attach, Flow, Disposition, Detach, End, Close]))
@settings(max_examples=300)
def test_fields_of_wrong_types_yield_protocol_errors(value, kind):
    from pairbus.amqp.codec import encode
    from pairbus.amqp.types import Described, ULong

    fields = value if isinstance(value, list) else [value] * 5
    connection = obliging_server()
    with contextlib.suppress(ProtocolError):
        feed(connection, PRELUDE)
        feed(connection, frame(0, encode(Described(ULong(kind.CODE), fields))))


@given(st.lists(st.binary(max_size=600), max_size=5), st.data())
@settings(max_examples=50)
def test_packet_boundaries_never_matter(payloads, data):
    # Given the bytes of a client that attaches and sends
    client, server, sender, *_ = pair(max_frame_size=512)
    for number, payload in enumerate(payloads):
        client.transfer(sender, payload, b"%d" % number)
    stream = client.data_to_send()
    # When they arrive in pieces
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    events = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += server.receive_data(stream[start:end])
    # Then they mean the same
    assert [event.payload for event in events] == payloads


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_noise_is_a_message_or_a_protocol_error(noise):
    for payload in (noise, b"\x00\x53\x70" + noise, b"\x00\x53\x72\xc1" + noise,
                    b"\x00\x53\x73\xc0" + noise, b"\x00\x53\x74" + noise):  # fmt: skip
        for read in ("header", "delivery_annotations", "message_annotations", "properties",
                     "application_properties", "body", "footer"):  # fmt: skip
            with contextlib.suppress(ProtocolError):
                getattr(Message.parse(payload), read)
        with contextlib.suppress(ProtocolError):
            split_batch(payload)


@given(values, values, st.dictionaries(st.text(max_size=5), values, max_size=4))
@settings(max_examples=100)
def test_messages_keep_every_value(value, annotation, properties):
    message = Message.build(
        message_annotations={"a": annotation},
        properties=Properties(message_id="m"),
        application_properties=properties,
        value=value,
    )
    payload = message.encode()
    again = Message.parse(payload)
    assert again.encode() == payload
    edited = again.replace(application_properties=dict(again.application_properties))
    assert edited.encode() == payload
    assert split_batch(join_batch([payload])) == [payload]


def test_client_survives_a_hostile_server():
    client = Connection(Role.CLIENT)
    client.open()
    server = Connection(Role.SERVER)
    served(client, server)
    server.close()
    pump(client, server)
    assert client.is_closed
