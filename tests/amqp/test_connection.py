"""Both roles of a connection, back to back."""

import tracemalloc

import pytest

from pairbus.amqp import sasl
from pairbus.amqp.connection import Connection, Phase, Role
from pairbus.amqp.errors import AmqpError, ProtocolError
from pairbus.amqp.events import (
    Attached,
    Begun,
    Closed,
    Delivery,
    Detached,
    Disposed,
    Ended,
    Flowed,
    Opened,
    SaslDone,
    SaslInitReceived,
)
from pairbus.amqp.frames import frame
from pairbus.amqp.link import EndState
from pairbus.amqp.performatives import (
    ACCEPTED,
    Error,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    Transfer,
)

from .pipe import pair, pump, served


def kinds(events):
    return [type(event) for event in events]


@pytest.mark.parametrize("chunk", [0, 1, 3, 7, 64])
def test_handshake_completes_whatever_the_packet_size(chunk):
    client = Connection(Role.CLIENT, container_id="c", hostname="h")
    server = Connection(Role.SERVER, container_id="s", properties={"product": "x"})
    client.open()
    session = client.begin()
    link = client.attach_sender(session, "n", target=Target("q"))
    mine, theirs = served(client, server, chunk)
    assert kinds(theirs) == [SaslDone, Opened, Begun, Attached]
    assert kinds(mine) == [SaslDone, Opened, Begun, Attached, Flowed]
    assert client.remote_open.container_id == "s"
    assert client.remote_open.properties == {"product": "x"}
    assert link.is_active
    assert link.credit == 100


def test_delivery_is_sent_received_and_settled():
    client, server, sender, _, _, _ = pair()
    client.transfer(sender, b"payload", b"tag", context="mine", message_format=7)
    (number,) = client.sessions[0].unsettled
    _, theirs = pump(client, server)
    (delivery,) = theirs
    assert (delivery.payload, delivery.tag, delivery.message_format) == (b"payload", b"tag", 7)
    assert delivery.delivery_id == number
    assert not delivery.settled
    server.settle(delivery.link, delivery.delivery_id, state=ACCEPTED)
    mine, _ = pump(client, server)
    (disposed,) = mine
    assert disposed.by_receiver
    assert disposed.settled
    assert disposed.state is ACCEPTED
    assert [d.context for d in disposed.deliveries] == ["mine"]
    assert sender.credit == 99
    assert not client.sessions[0].unsettled


def test_receiver_may_wait_for_the_sender_to_settle():
    client, server, _, receiver, _, out = pair()
    client.flow(receiver, 10)
    pump(client, server)
    server.transfer(out, b"m", b"t", context=1)
    ((delivery,), _) = pump(client, server)
    client.settle(receiver, delivery.delivery_id, state=Modified(True, False), settled=False)
    _, (asked,) = pump(client, server)
    assert not asked.settled
    assert asked.state == Modified(True, False)
    assert [d.context for d in asked.deliveries] == [1]
    server.settle(out, asked.first, state=asked.state)
    (answer,), _ = pump(client, server)
    assert not answer.by_receiver
    assert answer.settled
    assert not out.session.unsettled


def test_rejection_carries_condition_description_and_info():
    client, server, sender, *_ = pair()
    client.transfer(sender, b"m", b"t")
    _, (delivery,) = pump(client, server)
    server.settle(
        delivery.link, delivery.delivery_id, state=Rejected(Error("amqp:not-found", "no"))
    )
    (disposed,), _ = pump(client, server)
    assert disposed.state.error.condition == "amqp:not-found"
    assert disposed.state.error.info == {}


def test_ranged_disposition_reaches_all_deliveries_of_the_range():
    client, server, sender, *_ = pair()
    for n in range(10):
        client.transfer(sender, b"m", b"t", context=n)
    _, deliveries = pump(client, server)
    server.settle(deliveries[0].link, 2, 5, state=ACCEPTED)
    server.settle(deliveries[0].link, 8, 0xFFFF, state=ACCEPTED)
    (one, two), _ = pump(client, server)
    assert [d.context for d in one.deliveries] == [2, 3, 4, 5]
    assert [d.context for d in two.deliveries] == [8, 9]
    assert sorted(client.sessions[0].unsettled) == [0, 1, 6, 7]


@pytest.mark.parametrize("size", [0, 1, 511, 512, 5000, 100_000])
def test_large_deliveries_go_in_many_frames(size):
    client, server, sender, *_ = pair(max_frame_size=512)
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    client.transfer(sender, body, b"tag", settled=True, message_format=3)
    _, (delivery,) = pump(client, server)
    assert delivery.payload == body
    assert delivery.settled
    assert delivery.message_format == 3


def test_too_large_a_message_is_swallowed_and_told():
    client, server, sender, _, incoming, _ = pair(max_frame_size=512)
    incoming.max_message_size = 1000
    client.transfer(sender, bytes(5000), b"a")
    client.transfer(sender, bytes(900), b"b")
    _, (large, fitting) = pump(client, server)
    assert large.oversize
    assert large.payload == b""
    assert not fitting.oversize
    assert len(fitting.payload) == 900


def test_transfers_wait_for_the_window_and_leave_when_it_opens():
    client, server, sender, *_ = pair(incoming_window=4)
    for n in range(50):
        client.transfer(sender, b"%d" % n, b"t")
    assert sender.session.pending
    _, deliveries = pump(client, server)
    assert [d.payload for d in deliveries if isinstance(d, Delivery)] == [
        b"%d" % n for n in range(50)
    ]


def test_drain_gives_the_rest_of_the_credit_back():
    client, server, _, receiver, _, out = pair()
    client.flow(receiver, 10, drain=True)
    _, (asked,) = pump(client, server)
    assert asked.link is out
    assert (out.credit, out.drain) == (10, True)
    server.transfer(out, b"only", b"t", settled=True)
    server.drained(out)
    (delivery, flowed), _ = pump(client, server)
    assert delivery.payload == b"only"
    assert flowed.link is receiver
    assert receiver.credit == 0
    assert receiver.delivery_count == 10
    client.flow(receiver, 5)
    pump(client, server)
    assert out.credit == 5


def test_sending_without_credit_is_refused_locally():
    _, server, *_, out = pair()
    with pytest.raises(AmqpError, match="transfer-limit-exceeded"):
        server.transfer(out, b"m", b"t")


def test_refused_attach_arrives_with_null_terminus_and_error():
    client = Connection(Role.CLIENT)
    server = Connection(Role.SERVER)
    client.open()
    session = client.begin()
    link = client.attach_sender(session, "n", target=Target("nowhere"))
    _, theirs = pump(client, server)
    server.open()
    server.begin(theirs[2].session)
    server.detach(theirs[3].link, Error("amqp:not-found", "no such entity"))
    mine, _ = pump(client, server)
    attached, detached = mine[-2:]
    assert attached.attach.target is None
    assert detached.error.condition == "amqp:not-found"
    assert detached.link is link
    assert link.state is EndState.CLOSED
    assert not session.links


def test_detach_end_and_close_are_answered():
    client, server, sender, receiver, incoming, _ = pair()
    client.detach(receiver)
    mine, theirs = pump(client, server)
    assert kinds(mine) == kinds(theirs) == [Detached]
    server.end(incoming.session, Error("amqp:internal-error", "x"))
    mine, theirs = pump(client, server)
    assert kinds(mine) == kinds(theirs) == [Ended]
    assert mine[0].error.condition == "amqp:internal-error"
    assert sender.state is EndState.CLOSED
    client.close()
    mine, theirs = pump(client, server)
    assert kinds(mine) == kinds(theirs) == [Closed]
    assert client.is_closed
    assert server.is_closed
    assert client.receive_data(b"late bytes") == []


def test_frames_for_what_is_gone_are_ignored():
    client, server, sender, *_ = pair()
    server.end(server.sessions[0])
    crossing = server.data_to_send()
    client.transfer(sender, b"m", b"t")
    client.detach(sender)
    data = client.data_to_send()
    assert server.receive_data(data) == []
    assert kinds(client.receive_data(crossing)) == [Ended]


def test_handle_that_never_was_attached_is_a_violation():
    client, server, *_ = pair()
    with pytest.raises(ProtocolError) as caught:
        server.receive_data(frame(0, Transfer(99, 0, b"t").encode() + b"m"))
    assert caught.value.condition == "amqp:session:unattached-handle"
    (closed,) = client.receive_data(server.data_to_send())
    assert closed.error.condition == "amqp:session:unattached-handle"


def test_events_before_a_violation_are_not_lost():
    client, server, sender, *_ = pair()
    client.transfer(sender, b"good", b"t")
    with pytest.raises(ProtocolError) as caught:
        server.receive_data(client.data_to_send() + b"\x00\x00\x00\x01garbage")
    assert [e.payload for e in caught.value.events] == [b"good"]
    with pytest.raises(ProtocolError):
        server.receive_data(b"more")


def test_sasl_plain_is_decided_by_the_server():
    for code, phase in ((0, Phase.AMQP_HEADER), (1, Phase.CLOSED)):
        plain = sasl.Mechanism("PLAIN", b"\0user\0secret")
        client = Connection(Role.CLIENT, sasl=plain)
        server = Connection(Role.SERVER, sasl_mechanisms=["PLAIN", "EXTERNAL"])
        assert "secret" not in repr(plain)
        _, (asked,) = pump(client, server)
        assert isinstance(asked, SaslInitReceived)
        assert "secret" not in repr(asked)
        assert sasl.read_plain(asked.init.initial_response) == ("", "user", "secret")
        server.sasl_outcome(code)
        assert server.phase is phase
        if code == 0:
            mine, _ = pump(client, server)
            assert mine == [SaslDone("PLAIN")]
        else:
            with pytest.raises(ProtocolError, match="unauthorized-access"):
                client.receive_data(server.data_to_send())


def test_client_refuses_a_server_without_its_mechanism():
    client = Connection(Role.CLIENT, sasl=sasl.Mechanism("EXTERNAL", b""))
    server = Connection(Role.SERVER)
    with pytest.raises(ProtocolError, match="EXTERNAL"):
        pump(client, server)


def test_connection_without_sasl_works_where_it_is_allowed():
    client = Connection(Role.CLIENT, sasl=None)
    server = Connection(Role.SERVER, require_sasl=False)
    client.open()
    _, theirs = pump(client, server)
    assert kinds(theirs) == [Opened]
    with pytest.raises(ProtocolError, match="not on offer"):
        pump(Connection(Role.CLIENT, sasl=None), Connection(Role.SERVER))


def test_heartbeat_goes_out_when_the_peer_wants_one():
    client = Connection(Role.CLIENT)
    server = Connection(Role.SERVER, idle_time_out=12)
    client.open()
    server.tick(0.0)
    client.tick(0.0)
    served(client, server)
    client.tick(0.0)
    assert client.remote_open.idle_time_out == 6000
    assert client.next_deadline() == 2.0
    client.tick(1.9)
    assert client.data_to_send() == b""
    client.tick(2.0)
    beat = client.data_to_send()
    assert beat == b"\x00\x00\x00\x08\x02\x00\x00\x00"
    server.tick(2.0)
    assert server.next_deadline() == 14.0
    assert server.receive_data(beat) == []
    server.tick(12.0)
    assert server.next_deadline() == 24.0


def test_silent_peer_is_given_up():
    client, server, *_ = pair(idle_time_out=10)
    server.tick(0.0)
    server.tick(9.0)
    with pytest.raises(ProtocolError) as caught:
        server.tick(19.1)
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    (closed,) = client.receive_data(server.data_to_send())
    assert isinstance(closed, Closed)


def test_echo_is_answered():
    client, server, *_ = pair()
    server.receive_data(frame(0, Flow(0, 100, 0, 100, handle=1, echo=True).encode()))
    mine, _ = pump(client, server)
    assert kinds(mine) == [Flowed]


def test_sdk_handshake_as_captured_is_understood():
    """The first frames of azure-servicebus, pipelined after SASL."""
    server = Connection(Role.SERVER)
    assert server.receive_data(b"AMQP\x03\x01\x00\x00") == []
    init = bytes.fromhex("005341c01903a309414e4f4e594d4f5553a000a109") + b"127.0.0.1"
    (done,) = server.receive_data((len(init) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + init)
    assert done == SaslDone("ANONYMOUS")
    assert server.data_to_send().startswith(b"AMQP\x03\x01\x00\x00")


def test_disposition_of_the_unknown_is_no_news():
    client, server, _, receiver, *_ = pair()
    client.settle(receiver, 77, state=ACCEPTED)
    assert pump(client, server) == ([], [])
    client.settle(receiver, 0, 0xFFFFFFFF, state=ACCEPTED)
    _, (disposed,) = pump(client, server)
    assert isinstance(disposed, Disposed)
    assert disposed.deliveries == []


def test_source_filters_survive_the_attach():
    client = Connection(Role.CLIENT)
    server = Connection(Role.SERVER)
    client.open()
    session = client.begin()
    client.attach_receiver(
        session, "n", source=Source("q", filter={"com.microsoft:session-filter": "A"})
    )
    _, theirs = served(client, server)
    assert theirs[-1].attach.source.filter == {"com.microsoft:session-filter": "A"}


def test_peer_that_waits_for_what_is_over_can_be_answered():
    client, server, _, receiver, _, out = pair()
    client.flow(receiver, 100)
    pump(client, server)
    for n in range(10):
        server.transfer(out, b"m", b"t%d" % n)
    pump(client, server)
    server.forget(out.session, [0, 3, 4, 9])
    client.settle(receiver, 3, state=ACCEPTED, settled=False)
    client.settle(receiver, 0, 500, state=ACCEPTED, settled=False)
    client.settle(receiver, 77, state=ACCEPTED, settled=False)
    _, (single, ranged, never) = pump(client, server)
    assert (single.deliveries, single.unknown) == ([], [(3, 3)])
    assert [d.id for d in ranged.deliveries] == [1, 2, 5, 6, 7, 8]
    assert ranged.unknown == [(0, 0), (3, 4), (9, 9)]
    assert never.unknown == []
    server.settle_unknown(out.session, 3, 4, Rejected(Error("com.microsoft:message-lock-lost")))
    (answer,), _ = pump(client, server)
    assert (answer.by_receiver, answer.first, answer.last, answer.settled) == (False, 3, 4, True)


def test_frame_that_dribbles_in_is_kept_in_few_pieces():
    client, server, sender, *_ = pair()
    client.transfer(sender, bytes(100_000), b"t")
    data = client.data_to_send()
    tracemalloc.start()
    for start in range(0, len(data) - 3, 3):
        assert server.receive_data(data[start : start + 3]) == []
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 300_000  # each piece on its own would take 36 bytes more
    (delivery,) = server.receive_data(data[start + 3 :])
    assert delivery.payload == bytes(100_000)


def test_received_bytes_may_be_any_buffer():
    client = Connection(Role.CLIENT)
    server = Connection(Role.SERVER)
    client.open()
    while client.has_data_to_send or server.has_data_to_send:
        server.receive_data(bytearray(client.data_to_send()))
        client.receive_data(memoryview(server.data_to_send()))
    assert server.remote_open.container_id == "pairbus"


def test_client_may_close_before_the_handshake_is_over():
    client = Connection(Role.CLIENT)
    server = Connection(Role.SERVER)
    client.open()
    client.close()
    client.begin()
    mine, theirs = pump(client, server)
    assert kinds(theirs) == [SaslDone, Opened, Closed]
    assert kinds(mine) == [SaslDone, Opened, Closed]


def test_only_a_server_decides_about_sasl():
    with pytest.raises(ValueError, match="server"):
        Connection(Role.CLIENT).sasl_outcome(sasl.OK)


def test_transfer_may_carry_a_state():
    client, server, sender, *_ = pair(max_frame_size=512)
    for size in (10, 1000):
        client.transfer(sender, bytes(size), b"t", state=ACCEPTED)
    _, deliveries = pump(client, server)
    assert [(len(d.payload), d.state) for d in deliveries] == [(10, ACCEPTED), (1000, ACCEPTED)]


def test_attach_reply_may_change_termini_and_limit():
    client = Connection(Role.CLIENT)
    server = Connection(Role.SERVER)
    client.open()
    link = client.attach_sender(client.begin(), "n", target=Target("asked"))
    served(client, server, source=Source("a"), target=Target("given"), max_message_size=77)
    assert (link.attach.source.address, link.attach.target.address) == ("a", "given")
    assert link.remote_max_message_size == 77


def test_refused_receiver_gets_a_null_source():
    client = Connection(Role.CLIENT)
    server = Connection(Role.SERVER)
    client.open()
    client.attach_receiver(client.begin(), "n", source=Source("nowhere"))
    _, theirs = pump(client, server)
    server.open()
    server.begin(theirs[2].session)
    server.detach(theirs[3].link, Error("amqp:not-found"))
    (*_, attached, detached), _ = pump(client, server)
    assert attached.attach.source is None
    assert detached.error.condition == "amqp:not-found"


def test_peer_may_end_and_detach_before_it_is_answered():
    client, server, *_ = pair()
    # Given a client that takes everything back before the server has answered anything
    session = client.begin()
    link = client.attach_sender(session, "n", target=Target("q"))
    client.detach(link)
    client.end(session)
    mine, theirs = pump(client, server)
    assert kinds(theirs) == [Begun, Attached, Detached, Ended]
    # Then the server has answered begin and attach first, and nothing is left
    assert kinds(mine) == [Begun, Ended]
    assert sorted(client.sessions) == sorted(server.sessions) == [0]


def test_our_end_may_cross_the_answer_to_our_begin():
    client, server, *_ = pair()
    session = client.begin()
    link = client.attach_sender(session, "n", target=Target("q"))
    begun, attached = server.receive_data(client.data_to_send())
    server.begin(begun.session)
    server.attach_reply(attached.link)
    client.detach(link)
    client.end(session)
    mine, theirs = pump(client, server)
    assert kinds(mine) == [Begun, Ended]
    assert kinds(theirs) == [Detached, Ended]
    assert link.state is EndState.CLOSED


def test_our_detach_may_cross_the_answer_to_our_attach_on_a_session_that_lives():
    client, server, sender, *_ = pair()
    link = client.attach_sender(sender.session, "n", target=Target("q"))
    (attached,) = server.receive_data(client.data_to_send())
    server.attach_reply(attached.link)
    client.detach(link)
    mine, theirs = pump(client, server)
    assert kinds(mine) == [Attached, Detached]
    assert kinds(theirs) == [Detached]
    assert link.state is EndState.CLOSED


def test_both_ends_may_begin_and_attach_under_the_same_numbers():
    client, server, *_ = pair()
    # Given a server that takes channel 1 and handle 2 for itself
    session = server.begin()
    server.attach_sender(server.sessions[0], "pushed", source=Source("q"), target=Target("me"))
    waiting = server.data_to_send()
    # When the client, which does not know it yet, takes the same
    client.attach_sender(client.begin(), "other", target=Target("q"))
    client.attach_sender(client.sessions[0], "third", target=Target("q"))
    mine, theirs = client.receive_data(waiting), server.receive_data(client.data_to_send())
    # Then each of them gets a number of its own
    assert kinds(mine) == [Begun, Attached]
    assert kinds(theirs) == [Begun, Attached, Attached]
    assert sorted(server.sessions) == sorted(client.sessions) == [0, 1, 2]
    assert session.channel == 1
    assert [len(c.sessions[0].links) for c in (client, server)] == [4, 4]


def test_detached_sender_leaves_no_unsettled_deliveries():
    client, server, sender, _, incoming, _ = pair()
    client.transfer(sender, b"m", b"t")
    server.detach(incoming)
    pump(client, server)
    assert not sender.session.unsettled


def test_sender_settles_a_range_of_its_deliveries():
    client, server, sender, *_ = pair()
    for _ in range(5):
        client.transfer(sender, b"m", b"t")
    pump(client, server)
    client.settle(sender, 1, 3, state=ACCEPTED)
    assert sorted(sender.session.unsettled) == [0, 4]
    _, (disposed,) = pump(client, server)
    assert (disposed.by_receiver, disposed.first, disposed.last) == (False, 1, 3)


def test_range_may_name_deliveries_that_are_settled_already():
    client, server, sender, _, incoming, _ = pair()
    for n in range(6):
        client.transfer(sender, b"m", b"t", context=n)
    pump(client, server)
    server.settle(incoming, 1, state=ACCEPTED)
    server.settle(incoming, 0, 2, state=ACCEPTED)
    (_, ranged), _ = pump(client, server)
    assert [d.context for d in ranged.deliveries] == [0, 2]


def test_flow_without_credit_or_count_changes_only_the_rest():
    client, server, sender, receiver, *_ = pair()
    session = server.sessions[0]
    # A sender: credit as it was without link-credit, and as it stands without delivery-count
    client.receive_data(frame(0, Flow(0, 100, 0, 100, handle=0, drain=True).encode()))
    assert (sender.credit, sender.drain) == (100, True)
    client.receive_data(frame(0, Flow(0, 100, 0, 100, handle=0, link_credit=7).encode()))
    assert (sender.credit, sender.drain) == (7, False)
    # A receiver: a sender's flow without delivery-count returns nothing
    client.flow(receiver, 5)
    client.receive_data(frame(0, Flow(0, 100, 0, 100, handle=1).encode()))
    assert receiver.credit == 5
    assert session.state is EndState.ACTIVE


def test_incomplete_delivery_on_a_detached_link_is_dropped():
    _, server, sender, _, incoming, _ = pair()
    more = frame(0, Transfer(0, 0, b"t", more=True).encode() + b"begin")
    rest = frame(0, Transfer(0, more=False).encode() + b"end")
    server.detach(incoming)
    assert server.receive_data(more + rest) == []
    assert incoming.state is EndState.CLOSING
    assert sender.state is EndState.ACTIVE


def test_rest_of_a_delivery_that_our_detach_cuts_off_is_ignored():
    _, server, _, _, incoming, _ = pair()
    more = frame(0, Transfer(0, 0, b"t", more=True).encode() + b"begin")
    rest = frame(0, Transfer(0, more=False).encode() + b"end")
    assert server.receive_data(more) == []
    server.detach(incoming)
    assert server.receive_data(rest) == []
    assert not server.is_closed


def test_transfers_that_wait_for_the_window_are_dropped_with_their_link():
    client, server, _, receiver, _, out = pair()
    client.flow(receiver, 5)
    pump(client, server)
    out.session.remote_incoming_window = 1
    server.transfer(out, b"first", b"1")
    server.transfer(out, b"second", b"2")
    server.detach(out)
    events, _ = pump(client, server)
    assert kinds(events) == [Delivery, Detached]
    client.receive_data(b"")
    server.receive_data(frame(0, Flow(0, 100, 0, 100).encode()))
    assert server.data_to_send() == b""
    assert not out.session.pending


@pytest.mark.parametrize("size", [10, 3000])  # in one frame, and the last one cut off
def test_deliveries_that_a_detach_drops_leave_no_gap_in_the_numbers(size):
    client, server, _, receiver, _, out = pair(max_frame_size=512)
    other = client.attach_receiver(client.sessions[0], "other", source=Source("q"))
    pump(client, server)
    kept = next(link for link in out.session.links.values() if link.name == "other")
    server.attach_reply(kept)
    client.receive_data(server.data_to_send())
    client.flow(receiver, 5)
    client.flow(other, 5)
    pump(client, server)
    out.session.remote_incoming_window = 1
    server.transfer(out, bytes(size), b"1")
    server.transfer(out, b"dropped", b"2")
    server.transfer(kept, b"kept", b"3", context="kept")
    server.transfer(kept, b"settled", b"4", settled=True)
    server.transfer(kept, b"last", b"5", context="last")
    server.detach(out)
    server.receive_data(frame(0, Flow(0, 100, 0, 100).encode()))
    events = client.receive_data(server.data_to_send())
    sent = [event for event in events if isinstance(event, Delivery) and event.link is other]
    assert [(one.delivery_id, one.payload) for one in sent] == [
        (1, b"kept"), (2, b"settled"), (3, b"last"),
    ]  # fmt: skip
    client.settle(other, 1, 3, state=ACCEPTED)
    (disposed,) = (e for e in server.receive_data(client.data_to_send()) if isinstance(e, Disposed))
    assert [one.context for one in disposed.deliveries] == ["kept", "last"]


def test_detach_of_a_link_that_is_not_answered_yet_answers_it_first():
    client, server, *_ = pair()
    client.attach_receiver(client.sessions[0], "late", source=Source("q"), target=Target("me"))
    _, (attached,) = pump(client, server)
    server.detach(attached.link, Error("amqp:not-found", "the entity is deleted"))
    (answer, detached), _ = pump(client, server)
    assert isinstance(answer, Attached)
    assert answer.attach.source is None
    assert isinstance(detached, Detached)
    assert detached.error.condition == "amqp:not-found"


def test_buffer_that_follows_a_frame_in_pieces_is_processed():
    client, server, sender, *_ = pair()
    client.transfer(sender, bytes(1000), b"1")
    data = client.data_to_send()
    assert server.receive_data(data[:100]) == []
    assert len(server.receive_data(data[100:])) == 1
    client.transfer(sender, b"short", b"2")
    assert len(server.receive_data(bytearray(client.data_to_send()))) == 1
