"""Towards peers that misbehave as only the engine can."""

import socket
import threading
import time
from uuid import uuid4

import pytest

from pairbus.amqp.events import Disposed, Flowed
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.performatives import ACCEPTED, Error, Released
from pairbus.amqp.types import Int
from pairbus.client import (
    ConnectionLostError,
    LinkDetachedError,
    OperationTimeoutError,
    RejectedError,
)
from pairbus.client.aio import BulkConnection
from pairbus.runtime import AsyncioRuntime
from tests.client.support import Peer, is_entity

runtime = AsyncioRuntime()


async def test_released_message_is_told_as_not_taken():
    def act(peer, event):
        if is_entity(event):
            peer.engine.settle(event.link, event.delivery_id, state=Released())

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        (outcome,) = await (await client.sender("q")).send_batch([b"x"])
        assert isinstance(outcome.error, RejectedError)


async def test_outcome_that_is_not_settled_yet_is_settled_by_us():
    settled = threading.Event()

    def act(peer, event):
        if is_entity(event):
            peer.engine.settle(event.link, event.delivery_id, state=ACCEPTED, settled=False)
        elif type(event).__name__ == "Disposed":
            settled.set()

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        sender = await client.sender("q")
        assert (await sender.send_batch([b"x"]))[0].is_accepted
        assert await runtime.run_blocking(settled.wait, 10)


async def test_ended_session_is_a_lost_connection():
    def act(peer, event):
        if is_entity(event):
            peer.engine.end(event.link.session, Error("amqp:internal-error", "broken"))

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        (outcome,) = await (await client.sender("q")).send_batch([b"x"])
        assert isinstance(outcome.error, ConnectionLostError)
        assert outcome.error.condition == "amqp:internal-error"


async def test_peer_that_speaks_nonsense_is_a_lost_connection():
    def act(peer, event):
        if is_entity(event):
            peer.socket.sendall(b"\x00\x00\x00\x01nonsense")

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        (outcome,) = await (await client.sender("q")).send_batch([b"x"])
        assert outcome.error.condition == "amqp:connection:framing-error"


async def test_messages_go_in_frames_that_the_peer_takes():
    seen = []

    def act(peer, event):
        if is_entity(event):
            seen.append(event.payload)
            peer.engine.settle(event.link, event.delivery_id, state=ACCEPTED)

    async with Peer(act, max_frame_size=512) as peer, BulkConnection(**peer.address) as client:
        body = Message.build(data=bytes(range(256)) * 40).encode()
        assert (await (await client.sender("q")).send_batch([body]))[0].is_accepted
        assert seen == [body]


async def test_large_sends_do_not_wait_for_a_reader_beside_them():
    def act(peer, event):
        if is_entity(event):
            peer.engine.settle(event.link, event.delivery_id, state=ACCEPTED)

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        receiver, sender = (await client.receiver("q")), (await client.sender("q"))
        lost = []

        async def wait():
            try:
                await receiver.wait(60)
            except ConnectionLostError as error:
                lost.append(error)

        waiter = runtime.spawn(wait, name="waiter")
        outcomes = await sender.send_batch([b"x" * 900_000] * 30)  # more than any socket buffer
        assert all(outcome.is_accepted for outcome in outcomes)
        await client.close()
        assert await waiter.join(60)
        assert lost


async def test_peer_that_never_drains_is_timed_out():
    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 5:
            peer.engine.transfer(event.link, b"one", b"t" * 16)

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        receiver = await client.receiver("q")
        assert [one.payload for one in (await receiver.receive_now(5, timeout=3.0))] == [b"one"]
        assert receiver.broke_off  # there may be more
        with pytest.raises(OperationTimeoutError):
            await receiver.receive_now(6, timeout=0.05)


async def test_messages_that_come_after_a_timeout_are_given_to_the_next_receives():
    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 4:
            links.append(event.link)

    links = []
    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        receiver = await client.receiver("q")
        with pytest.raises(OperationTimeoutError):
            await receiver.receive_now(4, timeout=0.05)
        while not links:
            await runtime.sleep(0.001)
        with peer.lock:
            for payload in (b"1", b"2", b"3", b"4"):
                peer.engine.transfer(links[0], payload, payload * 16)
            peer.socket.sendall(peer.engine.data_to_send())
        peer.wait_for_arrival()
        assert [one.payload for one in await receiver.receive_now(1)] == [b"1"]
        assert [one.payload for one in await receiver.receive_now(3)] == [b"2", b"3", b"4"]
        assert not receiver.broke_off


async def test_a_receive_that_may_wait_returns_no_more_than_it_asks_for():
    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 3:
            links.append(event.link)

    links = []
    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        receiver = await client.receiver("q")
        with pytest.raises(OperationTimeoutError):
            await receiver.receive_now(3, timeout=0.05)
        while not links:
            await runtime.sleep(0.001)
        with peer.lock:
            for payload in (b"1", b"2", b"3"):
                peer.engine.transfer(links[0], payload, payload * 16)
            peer.socket.sendall(peer.engine.data_to_send())
        peer.wait_for_arrival()
        assert [one.payload for one in await receiver.receive(2, max_wait=10)] == [b"1", b"2"]
        assert [one.payload for one in await receiver.receive(1, max_wait=10)] == [b"3"]


async def test_a_link_can_be_closed_while_its_connection_breaks():
    class Recording(AsyncioRuntime):
        async def connect(self, *place, **options):
            streams.append(await super().connect(*place, **options))
            return streams[-1]

    def fail(_data):
        raise ConnectionResetError("reset by peer")

    streams = []
    async with Peer() as peer, BulkConnection(**peer.address, runtime=Recording()) as client:
        receiver = await client.receiver("q")
        streams[0].write = fail
        await receiver.close()
        assert not client.is_usable


async def test_a_bell_has_rung_when_the_peer_has_its_message_back():
    released = []

    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 1:
            peer.engine.transfer(event.link, b"one", b"t" * 16)
        if isinstance(event, Disposed):
            released.append(event)
            if len(released) > 1:  # the first one it never answers
                peer.engine.settle_unknown(event.session, event.first, event.last, event.state)

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        receiver = await client.receiver("q")
        client.timeout = 0.1
        with pytest.raises(OperationTimeoutError, match="releasing"):
            await receiver.wait(10)
        client.timeout = 10
        assert await receiver.wait(10)
        assert [event.settled for event in released] == [False, False]


@pytest.mark.parametrize("end", ["detach", "close", "drop"])
async def test_what_came_before_a_receive_broke_off_is_given_and_told(end):
    def act(peer, event):
        if not isinstance(event, Flowed) or event.link is None:
            return
        if event.link.credit == 2:
            for tag in (b"1" * 16, b"2" * 16):
                peer.engine.transfer(event.link, tag[:1], tag)
        elif event.link.credit == 900:  # the second time it asks: less than that comes
            peer.engine.transfer(event.link, b"3", b"3" * 16)
            if end == "detach":
                peer.engine.detach(event.link, Error("amqp:internal-error", "gone"))
            elif end == "close":
                peer.engine.close(Error("amqp:connection:forced", "gone"))
            else:
                peer.socket.sendall(peer.engine.data_to_send())
                peer.socket.shutdown(socket.SHUT_RDWR)

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        receiver = await client.receiver("q")
        receiver._mean_bytes = 1  # noqa: SLF001 - so that it asks for two, and then for as many as it may
        assert len(await receiver.take_now(2, 2)) == 2
        assert not receiver.broke_off
        assert (await receiver.take_now(900, 900)) == [(b"3" * 16, b"3")]
        assert receiver.broke_off
        with pytest.raises((LinkDetachedError, ConnectionLostError)):
            await receiver.take_now(1, 1)


async def test_link_refused_while_receiving_says_why():
    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 5:
            peer.engine.detach(event.link, Error("com.microsoft:entity-disabled", "off"))

    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        with pytest.raises(LinkDetachedError) as caught:
            await (await client.receiver("q")).receive_now(5)
        assert caught.value.condition == "com.microsoft:entity-disabled"
        receiver = await client.receiver("q")
        with pytest.raises(LinkDetachedError):
            await receiver.receive(5, 10)


@pytest.mark.slow
@pytest.mark.parametrize("is_lost", [True, False])
async def test_requests_that_were_answered_before_a_failure_keep_their_answers(is_lost):
    def act(peer, event):
        if not is_entity(event):
            return
        answer = Message.build(
            properties=Properties(
                correlation_id=Message.parse(event.payload).properties.message_id
            ),
            application_properties={"statusCode": Int(200)},
            value=None,
        )
        requests.append(event)
        if len(requests) < 3:  # not the third
            (link,) = (one for one in peer.links_to("$management") if one.is_sender)
            peer.engine.transfer(link, answer.encode(), b"1", settled=True)
        elif is_lost:
            peer.engine.close()

    requests = []
    async with Peer(act) as peer, BulkConnection(**peer.address) as client:
        management = client.management("q")
        assert await management.settle_each([[uuid4()]]) == [None]
        if not is_lost:
            client.timeout = 2.0
        answered, unanswered = await management.settle_each([[uuid4()], [uuid4()]])
        assert answered is None
        assert type(unanswered) is (ConnectionLostError if is_lost else OperationTimeoutError)


async def test_connection_dies_with_its_peer_even_unused():
    async with Peer() as peer:
        client = await BulkConnection(**peer.address).connect()
        assert client.is_usable
        peer.socket.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + 60
        while client.is_usable:
            assert time.monotonic() < deadline
            await runtime.sleep(0.001)
        assert "closed" in repr(client)
        await client.close()


@pytest.mark.slow
async def test_peer_that_falls_silent_is_given_up():
    # The peer has nothing to say after the attach, and sends no heartbeats.
    async with Peer() as peer, BulkConnection(**peer.address, idle_time_out=2.5) as client:
        receiver = await client.receiver("q")
        with pytest.raises(ConnectionLostError) as caught:
            await receiver.wait(30)
        assert caught.value.condition == "amqp:resource-limit-exceeded"
