"""What a peer may not do, and the condition that it is told."""

import tracemalloc

import pytest

from pairbus.amqp import sasl
from pairbus.amqp.codec import encode
from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import AmqpError, ProtocolError
from pairbus.amqp.events import Attached, Begun, Closed, Delivery, Opened
from pairbus.amqp.frames import frame, sasl_frame
from pairbus.amqp.link import EndState
from pairbus.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sasl import (
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from pairbus.amqp.types import Described, Symbol, ULong

from .pipe import pair, pump


def started(**options):
    """A server with one session and a link for each direction, on channel 0."""
    server = Connection(
        Role.SERVER, max_frame_size=4096, channel_max=1, handle_max=2, max_message_size=1000,
        require_sasl=False, **options,
    )  # fmt: skip
    said = [Open("c"), Begin(None, 0, 100, 100), Attach("in", 0, False, target=Target("q")),
            Attach("out", 1, True, source=Source("q"))]  # fmt: skip
    for event in server.receive_data(
        b"AMQP\x00\x01\x00\x00" + b"".join(frame(0, p.encode()) for p in said)
    ):
        match event:
            case Opened():
                server.open()
            case Begun(session):
                server.begin(session)
            case Attached(link):
                server.attach_reply(link)
    server.data_to_send()
    return server


def transfer(payload=b"", channel=0, **fields):
    given = {"handle": 0, "delivery_id": 0, "delivery_tag": b"t", **fields}
    return frame(channel, Transfer(**given).encode() + payload)


def told(*performatives):
    return b"".join(frame(0, p.encode()) for p in performatives)


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (told(Open("again")), "amqp:illegal-state"),
        (told(Begin(None, 0, 1, 1)), "amqp:illegal-state"),
        (frame(1, Begin(7, 0, 1, 1).encode()), "amqp:illegal-state"),
        (frame(2, Begin(None, 0, 1, 1).encode()), "amqp:connection:framing-error"),
        (told(Attach("x", 3, False, target=Target("q"))), "amqp:connection:framing-error"),
        (told(Attach("x", 1, False, target=Target("q"))), "amqp:session:handle-in-use"),
        (told(Flow(None, 1, 0, 1, handle=2)), "amqp:session:unattached-handle"),
        (told(Detach(2)), "amqp:session:unattached-handle"),
        (transfer(handle=2), "amqp:session:unattached-handle"),
        (transfer(handle=1), "amqp:not-allowed"),
        (transfer(delivery_id=None), "amqp:illegal-state"),
        (transfer(delivery_tag=None), "amqp:illegal-state"),
        (transfer(more=True) + transfer(delivery_id=1), "amqp:illegal-state"),
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x7f\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", "amqp:connection:framing-error"),
        (frame(0, b"\x40"), "amqp:not-allowed"),
        (frame(0, ACCEPTED.encode()), "amqp:not-allowed"),
        (frame(0, End().encode() + b"\x40"), "amqp:connection:framing-error"),
        (frame(0, b"\x00\x53\x14\x45"), "amqp:invalid-field"),  # no handle
        (frame(0, b"\x00\x53\x14\xc0\x05"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x17\xc0\xff\x01"), "amqp:decode-error"),
        (frame(0, encode(Described(Symbol("amqp:detach:list"), [None]))), "amqp:invalid-field"),
        (frame(0, encode(Described(Symbol("amqp:detach:list"), ["x"]))), "amqp:invalid-field"),
        (frame(0, encode(Described(Symbol("amqp:end:list"), [1]))), "amqp:invalid-field"),
        (frame(0, encode(Described(Symbol("amqp:end:list"), [None, None]))), "amqp:decode-error"),
        (frame(0, encode(Described(Symbol("amqp:end:list"), {}))), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x14\xc0\x02\x01\x40"), "amqp:invalid-field"),  # no handle
        (frame(0, b"\x00\x53\x14\xc0\x04\x01\x52\x00\x40"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x14\xc0\x04\x02\x43\xa1\x00"), "amqp:invalid-field"),
        (frame(0, b"\x00\x53\x14\xc0\x05\x03\x43\x43\xa1\x00"), "amqp:invalid-field"),
    ],
)  # fmt: skip
def test_violation_is_told_with_its_condition(data, condition):
    server = started()
    with pytest.raises(ProtocolError) as caught:
        server.receive_data(data)
    assert caught.value.condition == condition
    assert condition.encode() in server.data_to_send()
    assert server.is_closed


@pytest.mark.parametrize(
    "data",
    [
        frame(1, Flow(None, 1, 0, 1).encode()), frame(1, End().encode()),
        frame(1, Detach(0).encode()), frame(1, Attach("x", 0, False).encode()),
        transfer(channel=1), frame(1, Disposition(True, 0).encode()),
        frame(1, Disposition(True, 0, 0, True, ACCEPTED).encode()),
        b"\x00\x00\x00\x08\x02\x00\x00\x00",
    ],
)  # fmt: skip
def test_what_is_for_nobody_is_ignored(data):
    server = started()
    assert server.receive_data(data) == []
    assert not server.is_closed


def test_first_frame_must_be_an_open():
    for data in (told(Begin(None, 0, 1, 1)), transfer(),
                 told(Disposition(True, 0, 0, True, ACCEPTED))):  # fmt: skip
        server = Connection(Role.SERVER, require_sasl=False)
        with pytest.raises(ProtocolError, match="illegal-state"):
            server.receive_data(b"AMQP\x00\x01\x00\x00" + data)
        assert b"amqp:illegal-state" in server.data_to_send()  # after an open of its own


def test_bytes_after_the_open_are_a_violation():
    server = Connection(Role.SERVER, require_sasl=False)
    with pytest.raises(ProtocolError, match="framing-error"):
        server.receive_data(b"AMQP\x00\x01\x00\x00" + frame(0, Open("c").encode() + b"\x40"))


def test_session_beyond_our_or_the_peers_limit_is_a_violation():
    # Given a client that may use one channel more than the server, and a server that has one
    client, server, *_ = pair(channel_max=1)
    server.begin()
    server.receive_data(b"")
    # When it begins a session for which the server has no channel of its own
    with pytest.raises(ProtocolError) as caught:
        server.receive_data(frame(1, Begin(None, 0, 1, 1).encode()))
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    assert client.sessions.keys() == {0}


def test_link_beyond_the_limit_is_a_violation():
    server = started()
    server.attach_sender(server.sessions[0], "pushed", target=Target("c"))
    with pytest.raises(ProtocolError) as caught:
        server.receive_data(told(Attach("more", 2, False, target=Target("q"))))
    assert caught.value.condition == "amqp:resource-limit-exceeded"


def test_close_before_open_is_answered():
    server = Connection(Role.SERVER, require_sasl=False)
    (closed,) = server.receive_data(b"AMQP\x00\x01\x00\x00" + told(Close()))
    assert isinstance(closed, Closed)
    assert server.data_to_send()


def test_sessions_and_links_are_bounded():
    server = started()
    (begun,) = server.receive_data(frame(1, Begin(None, 0, 1, 1).encode()))
    server.begin(begun.session)
    server.end(begun.session)  # it lives until the peer has ended it too
    assert server.receive_data(frame(1, Attach("late", 0, False).encode())) == []
    assert server.receive_data(transfer(channel=1, handle=0)) == []
    server.receive_data(frame(1, End().encode()))
    assert len(server.sessions) == 1
    client = Connection(Role.CLIENT, channel_max=0, handle_max=0)
    session = client.begin()
    with pytest.raises(AmqpError, match="channels"):
        client.begin()
    client.attach_sender(session, "a", target=Target("q"))
    with pytest.raises(AmqpError, match="handles"):
        client.attach_sender(session, "b", target=Target("q"))


def test_aborted_deliveries_leave_nothing():
    server = started()
    abort = transfer(delivery_id=None, delivery_tag=None, aborted=True)
    for _ in range(5):  # together more than may wait, if anything were left
        assert server.receive_data(transfer(b"x" * 600, more=True)) == []
        assert server.receive_data(abort) == []
    assert server.receive_data(transfer(aborted=True)) == []
    (delivery,) = server.receive_data(transfer(b"whole", delivery_id=1))
    assert delivery.payload == b"whole"


def test_settled_and_state_may_come_with_a_later_frame():
    server = started()
    server.receive_data(transfer(b"a", more=True))
    (delivery,) = server.receive_data(
        transfer(b"b", delivery_id=None, delivery_tag=None, settled=True, state=ACCEPTED)
    )
    assert (delivery.payload, delivery.settled, delivery.state) == (b"ab", True, ACCEPTED)


def test_incomplete_deliveries_are_bounded_together():
    server = started()
    server.receive_data(told(Attach("second", 2, False, target=Target("q"))))
    server.receive_data(transfer(b"x" * 600, more=True))
    with pytest.raises(ProtocolError, match="resource-limit-exceeded"):
        server.receive_data(transfer(b"x" * 600, handle=2, delivery_id=1, more=True))


def test_oversize_message_in_many_frames_takes_no_memory():
    server = started()
    server.receive_data(transfer(b"x" * 3000, more=True))
    more = transfer(b"x" * 3000, delivery_id=None, delivery_tag=None, more=True)
    tracemalloc.start()
    for _ in range(200):
        server.receive_data(more)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000  # of 600,000 bytes
    (delivery,) = server.receive_data(transfer(b"x", delivery_id=None, delivery_tag=None))
    assert delivery.oversize
    assert delivery.payload == b""


def test_unusual_descriptors_of_performatives_are_understood():
    server = started()
    raw = Transfer(0, 0, b"t").encode()[3:]
    long = b"\x00\x80" + (0x14).to_bytes(8, "big") + raw + b"payload"
    symbol = b"\x00" + encode(Symbol("amqp:transfer:list")) + raw + b"payload"
    for body in (long, symbol):
        (delivery,) = server.receive_data(frame(0, body))
        assert isinstance(delivery, Delivery)
        assert delivery.payload == b"payload"


def test_deliveries_to_a_link_that_we_detached_are_dropped():
    server = started()
    link = server.sessions[0].links[0]
    server.receive_data(transfer(b"x", more=True))
    server.detach(link)
    server.detach(link)
    assert server.receive_data(transfer(b"late", delivery_id=1)) == []
    assert link.state is EndState.CLOSING
    server.end(link.session)
    server.end(link.session)
    server.close()
    server.close()


def _encode(value):
    return encode(value) if isinstance(value, Described) else value.encode()


@pytest.mark.parametrize(
    ("role", "performative", "condition"),
    [
        (Role.SERVER, Described(ULong(0x43), [b"x"]), "amqp:not-allowed"),
        (Role.SERVER, SaslOutcome(0), "amqp:not-allowed"),
        (Role.SERVER, SaslInit("GSSAPI"), "amqp:unauthorized-access"),
        (Role.CLIENT, Described(ULong(0x42), [b"x"]), "amqp:not-allowed"),
        (Role.CLIENT, SaslInit("ANONYMOUS"), "amqp:not-allowed"),
        (Role.CLIENT, SaslOutcome(2), "amqp:unauthorized-access"),
        (Role.CLIENT, SaslMechanisms(["PLAIN"]), "amqp:unauthorized-access"),
    ],
)
def test_sasl_out_of_order_is_refused(role, performative, condition):
    connection = Connection(role)
    connection.receive_data(b"AMQP\x03\x01\x00\x00")
    with pytest.raises(ProtocolError) as caught:
        connection.receive_data(sasl_frame(_encode(performative)))
    assert caught.value.condition == condition


def test_amqp_frame_within_sasl_is_refused():
    connection = Connection(Role.SERVER)
    connection.receive_data(b"AMQP\x03\x01\x00\x00")
    with pytest.raises(ProtocolError, match="SASL frame"):
        connection.receive_data(told(Open("x")))
    connection = Connection(Role.SERVER)
    connection.receive_data(b"AMQP\x03\x01\x00\x00")
    with pytest.raises(ProtocolError, match="bytes after"):
        connection.receive_data(sasl_frame(SaslInit("ANONYMOUS").encode() + b"\x40"))


@pytest.mark.parametrize("header", [b"GET / HT", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01"])
def test_other_protocols_are_told_what_is_spoken_here(header):
    connection = Connection(Role.SERVER)
    with pytest.raises(ProtocolError, match="framing-error"):
        connection.receive_data(header)
    assert connection.data_to_send() == b"AMQP\x03\x01\x00\x00"
    client = Connection(Role.CLIENT)
    with pytest.raises(ProtocolError, match="framing-error"):
        client.receive_data(header)


def test_plain_response_needs_three_parts():
    with pytest.raises(ProtocolError):
        sasl.read_plain(b"no parts")
    assert sasl.read_plain(b"a\0b\0c") == ("a", "b", "c")


def test_everything_shows_what_it_is():
    client, server, sender, receiver, incoming, _ = pair()
    client.transfer(sender, b"m", b"t")
    _, (delivery,) = pump(client, server)
    assert repr(delivery) == "<Delivery 0 of 1 bytes on 'out'>"
    assert repr(sender) == "<Link sender 'out' active credit=99>"
    assert repr(sender.session) == "<Session 0 active>"
    assert repr(client) == "<Connection client frames sessions=1>"
    assert repr(sender.session.unsettled[0]) == "<Outgoing 0 on 'out'>"
    server.settle(incoming, 0, state=ACCEPTED)
    (disposed,), _ = pump(client, server)
    assert repr(disposed) == "<Disposed 0-0 settled=True Accepted()>"
    assert client.next_deadline() is None
    client.close()
    pump(client, server)
    client.tick(0.0)
    assert client.next_deadline() is None
    assert receiver.state is EndState.CLOSED
