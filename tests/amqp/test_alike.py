"""Transfers that look alike are read, and written, in one step, as if each were read by itself."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.errors import AmqpError
from pairbus.amqp.events import Delivery
from pairbus.amqp.types import Array, Uuids
from tests.amqp.pipe import pair

messages = st.lists(
    st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=40), st.booleans()),
    max_size=12,
)


def told(events):
    return [
        (e.delivery_id, e.tag, e.payload, e.settled, e.message_format, e.oversize)
        for e in events
        if isinstance(e, Delivery)
    ]


@given(messages, st.integers(1, 300))
def test_a_run_of_transfers_is_read_as_each_of_them_alone(sent, chunk):
    read = []
    for step in (chunk, 0):
        client, server, _, receiver, _, link = pair()
        client.flow(receiver, 100)
        server.receive_data(client.data_to_send())
        frames = []
        for tag, payload, settled in sent:
            server.transfer(link, payload, tag, settled=settled)
            frames.append(server.data_to_send())
        if step:  # in pieces of any size, so that runs begin and end anywhere
            data = b"".join(frames)
            frames = [data[i : i + step] for i in range(0, len(data), step)]
        else:  # each by itself, and nothing is learnt from one for the next
            client._learn = lambda *_a: None
        events = [event for frame in frames for event in client.receive_data(frame)]
        read.append((told(events), receiver.credit, receiver.delivery_count))
    assert read[0] == read[1]
    assert [payload for _, _, payload, *_ in read[0][0]] == [payload for _, payload, _ in sent]


def test_a_transfer_that_looks_different_ends_a_run_and_is_read_too():
    client, server, _, receiver, _, link = pair()
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


def test_a_message_that_is_too_large_is_found_within_a_run():
    client, server, _, receiver, _, link = pair()
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
