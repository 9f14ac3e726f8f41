"""Runs of similar transfers are read and written as if each transfer were handled alone."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.errors import AmqpError
from pairbus.amqp.events import Flowed
from pairbus.amqp.frames import frame
from pairbus.amqp.performatives import Transfer
from pairbus.amqp.types import Array, Uuids
from tests.amqp.pipe import pair, pump

messages = st.lists(
    st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=40), st.booleans()),
    max_size=12,
)


FIRST = st.sampled_from([0, 250, 1000, 2**32 - 3])  # runs are read from number 256 on


@given(messages, st.integers(1, 300), FIRST)
def test_runs_are_read_the_same_wherever_the_stream_is_cut(sent, chunk, first):
    client, server, _, receiver, _, link = pair()
    link.session.next_delivery_id = first
    client.flow(receiver, 100)
    server.receive_data(client.data_to_send())
    for tag, payload, settled in sent:
        server.transfer(link, payload, tag, settled=settled)
    data = server.data_to_send()
    pieces = [data[i : i + chunk] for i in range(0, len(data), chunk)]
    events = [event for piece in pieces for event in client.receive_data(piece)]
    assert [
        (e.delivery_id, e.tag, e.payload, e.settled, e.message_format, e.oversize) for e in events
    ] == [
        ((first + n) % 2**32, tag, payload, settled, 0, False)
        for n, (tag, payload, settled) in enumerate(sent)
    ]
    assert (receiver.credit, receiver.delivery_count) == (100 - len(sent), len(sent))


@pytest.mark.parametrize("first", [0, 1000])
def test_transfer_that_differs_ends_a_run_and_is_read_too(first):
    client, server, _, receiver, _, link = pair()
    link.session.next_delivery_id = first
    client.flow(receiver, 100)
    server.receive_data(client.data_to_send())
    for number in range(20):
        odd = number == 13
        server.transfer(
            link, b"%d" % number, b"t%03d" % number, settled=odd, message_format=7 if odd else 0
        )
    events = client.receive_data(server.data_to_send())
    assert [e.payload for e in events] == [b"%d" % n for n in range(20)]
    assert [e.message_format for e in events] == [0] * 13 + [7] + [0] * 6


@pytest.mark.parametrize("first", [0, 1000])
def test_message_that_is_too_large_is_found_within_a_run(first):
    client, server, _, receiver, _, link = pair()
    link.session.next_delivery_id = first
    receiver.max_message_size = 10
    client.flow(receiver, 100)
    server.receive_data(client.data_to_send())
    for size in (5, 5, 5, 11, 5):
        server.transfer(link, b"x" * size, b"tag")
    events = client.receive_data(server.data_to_send())
    assert [(len(e.payload), e.oversize) for e in events] == [
        (5, False), (5, False), (5, False), (0, True), (5, False),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.binary(), st.binary())))
def test_many_messages_are_written_as_one_by_one(sent):
    written = []
    for many in (True, False):
        client, server, _, receiver, _, link = pair()
        client.flow(receiver, 1000)
        server.receive_data(client.data_to_send())
        if many:
            assert server.transfer_many(link, sent) == sum(len(a) + len(b) for _, a, b in sent)
        else:
            for tag, front, rest in sent:
                server.transfer(link, front + rest, tag)
        written.append((server.data_to_send(), link.credit, link.delivery_count,
                        list(link.session.unsettled)))  # fmt: skip
    assert written[0] == written[1]


def test_many_messages_need_credit_for_all_of_them():
    client, server, _, receiver, _, link = pair()
    client.flow(receiver, 1)
    server.receive_data(client.data_to_send())
    with pytest.raises(AmqpError):
        server.transfer_many(link, [(b"a", b"", b""), (b"b", b"", b"")])
    assert server.data_to_send() == b""


@given(st.lists(st.uuids()))
def test_an_array_of_uuid_stays_bytes_and_says_the_same(items):
    array = Uuids.from_little_endian([one.bytes_le for one in items])
    assert encode(array) == encode(Array(items, 0x98))
    again, _ = decode(encode(array))
    assert isinstance(again, Uuids)
    assert again == Array(items)
    assert list(again) == items
    assert len(again) == len(items)
    assert again.little_endian() == [one.bytes_le for one in items]
    assert all(isinstance(one, uuid.UUID) for one in again)


def test_window_is_opened_again_within_a_run():
    # Given a receiver with a window of eight frames
    client, server, _, receiver, _, link = pair(incoming_window=8)
    client.flow(receiver, 100)
    pump(client, server)
    # When the sender has more for it
    for number in range(30):
        server.transfer(link, b"%d" % number, b"tag")
    mine, theirs = pump(client, server)
    # Then all of it arrives, because the receiver opens the window as it reads
    assert [e.payload for e in mine] == [b"%d" % n for n in range(30)]
    assert {type(event) for event in theirs} == {Flowed}


def test_run_ends_where_the_link_is_detached():
    client, server, _, receiver, _, link = pair()
    client.flow(receiver, 100)
    server.receive_data(client.data_to_send())
    for number in range(3):
        server.transfer(link, b"%d" % number, b"tag")
    assert len(client.receive_data(server.data_to_send())) == 3
    client.detach(receiver)
    server.transfer(link, b"late", b"tag")
    assert client.receive_data(server.data_to_send()) == []


def test_run_ends_where_a_delivery_begins_that_has_more_frames():
    client, server, _, receiver, _, link = pair(max_frame_size=512)
    client.flow(receiver, 100)
    server.receive_data(client.data_to_send())
    sizes = [10, 10, 10, 2000, 10, 10]
    for size in sizes:
        server.transfer(link, bytes(size), b"tag")
    events = client.receive_data(server.data_to_send())
    assert [len(event.payload) for event in events] == sizes


def test_peer_that_encodes_every_transfer_differently_is_read_too():
    client, _, _, receiver, *_ = pair()
    receiver.credit = 1000
    frames = [
        # A tag of another length each time: no transfer is like the one before.
        frame(0, Transfer(1, n, b"t" * (1 + n % 30)).encode() + b"%d" % n)
        for n in range(300)
    ]
    # A list with four-byte sizes, from which no template is made.
    frames += [frame(0, Transfer(1, 300 + n, b"t" * 260).encode() + b"x") for n in range(3)]
    events = client.receive_data(b"".join(frames))
    assert [e.payload for e in events] == [b"%d" % n for n in range(300)] + [b"x"] * 3
    assert [e.delivery_id for e in events] == list(range(303))


def test_many_messages_wait_for_the_window_or_go_in_many_frames():
    for options in ({"incoming_window": 2}, {"max_frame_size": 512}):
        client, server, _, receiver, _, link = pair(**options)
        client.flow(receiver, 100)
        pump(client, server)
        sent = [(b"t%d" % n, b"head", b"%d" % n * 500) for n in range(7)]
        assert server.transfer_many(link, sent) == sum(4 + len(rest) for _, _, rest in sent)
        mine, _ = pump(client, server)
        assert [e.payload for e in mine] == [front + rest for _, front, rest in sent]
