"""The asynchronous SDK: the same features through azure.servicebus.aio."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
)


class AioBus:
    def __init__(self, ns) -> None:
        self.ns = ns
        self.client = ServiceBusClient.from_connection_string(ns.connection_string, retry_total=0)
        self.stack = AsyncExitStack()
        self._open: list = []

    def queue(self, **properties) -> str:
        name = f"q-{uuid.uuid4().hex[:12]}"
        self.ns.create_queue(name, **properties)
        return name

    async def sender(self, queue: str):
        return await self.keep(self.client.get_queue_sender(queue))

    async def receiver(self, queue: str, **options):
        return await self.keep(self.client.get_queue_receiver(queue, **options))

    async def keep(self, handler):
        self._open.append(handler)
        return await handler.__aenter__()

    async def close(self) -> None:
        await asyncio.gather(*(handler.close() for handler in self._open))
        await self.client.close()

    async def take(self, receiver, count: int = 1):
        found: list = []
        while len(found) < count:
            more = await receiver.receive_messages(count - len(found), max_wait_time=5)
            assert more, f"{len(found)} messages came, {count} were expected"
            found += more
        return found


@pytest.fixture
async def aio(namespace) -> AsyncIterator[AioBus]:
    bus = AioBus(namespace)
    yield bus
    await bus.close()


@pytest.mark.covers("aio.ServiceBusSender.send_messages", "aio.ServiceBusReceiver.receive_messages")
@pytest.mark.covers("aio.ServiceBusReceiver.complete_message")
@pytest.mark.covers("aio.ServiceBusSender.create_message_batch")
@pytest.mark.covers("aio.ServiceBusClient.get_queue_sender")
@pytest.mark.covers("aio.ServiceBusClient.get_queue_receiver")
@pytest.mark.covers("aio.ServiceBusClient.from_connection_string")
async def test_send_receive_and_complete_side_by_side(aio) -> None:
    queue = aio.queue()
    sender = await aio.sender(queue)
    batch = await sender.create_message_batch()
    for number in range(30):
        batch.add_message(ServiceBusMessage(str(number)))
    await sender.send_messages(batch)
    receiver = await aio.receiver(queue)
    found = await aio.take(receiver, 30)
    assert [str(m) for m in found] == [*map(str, range(30))]
    await asyncio.gather(*(receiver.complete_message(m) for m in found))
    assert await receiver.peek_messages(sequence_number=1) == []
    assert aio.ns.do(lambda ns: ns.admin.runtime(queue)).total_message_count == 0


@pytest.mark.covers(
    "aio.ServiceBusReceiver.abandon_message", "aio.ServiceBusReceiver.dead_letter_message"
)
@pytest.mark.covers(
    "aio.ServiceBusReceiver.defer_message", "aio.ServiceBusReceiver.receive_deferred_messages"
)
@pytest.mark.covers(
    "aio.ServiceBusReceiver.peek_messages", "aio.ServiceBusReceiver.renew_message_lock"
)
async def test_every_way_to_settle(aio) -> None:
    queue = aio.queue()
    sender = await aio.sender(queue)
    await sender.send_messages([ServiceBusMessage(str(n)) for n in range(3)])
    receiver = await aio.receiver(queue)
    zero, one, two = await aio.take(receiver, 3)
    assert await receiver.renew_message_lock(zero) > datetime.now(UTC)
    await receiver.abandon_message(zero)
    await receiver.dead_letter_message(one, reason="r", error_description="d")
    await receiver.defer_message(two)
    assert [str(m) for m in await receiver.peek_messages(5, sequence_number=1)] == ["0", "2"]
    [zero] = await aio.take(receiver)
    assert zero.delivery_count == 1
    await receiver.complete_message(zero)
    [two] = await receiver.receive_deferred_messages([two.sequence_number])
    if two.lock_token is not None:  # azure-servicebus 7.14.3 loses it
        await receiver.complete_message(two)
    dead = await aio.receiver(queue, sub_queue="deadletter")
    [one] = await aio.take(dead)
    assert one.dead_letter_reason == "r"
    await dead.complete_message(one)


@pytest.mark.covers("aio.ServiceBusReceiver.session", "aio.ServiceBusSession.get_state")
@pytest.mark.covers("aio.ServiceBusSession.set_state", "aio.ServiceBusSession.renew_lock")
@pytest.mark.covers("aio.ServiceBusSession.session_id", "aio.ServiceBusSession.locked_until_utc")
async def test_sessions(aio) -> None:
    queue = aio.queue(requires_session=True)
    sender = await aio.sender(queue)
    await sender.send_messages(ServiceBusMessage("x", session_id="s"))
    receiver = await aio.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    assert receiver.session.session_id == "s"
    await receiver.session.set_state(b"half")
    assert await receiver.session.get_state() == b"half"
    assert await receiver.session.renew_lock() > datetime.now(UTC)
    assert receiver.session.locked_until_utc > datetime.now(UTC)
    with pytest.raises(SessionCannotBeLockedError):
        await aio.client.get_queue_receiver(queue, session_id="s").__aenter__()
    [message] = await aio.take(receiver)
    await receiver.complete_message(message)


@pytest.mark.covers("aio.ServiceBusClient.list_queue_sessions")
@pytest.mark.covers("aio.ServiceBusClient.list_subscription_sessions")
async def test_sessions_are_listed(aio) -> None:
    list_sessions = getattr(aio.client, "list_queue_sessions", None)
    if list_sessions is None:
        pytest.skip("this azure-servicebus cannot list sessions")
    queue = aio.queue(requires_session=True)
    sender = await aio.sender(queue)
    await sender.send_messages([ServiceBusMessage("x", session_id=s) for s in "ab"])
    assert sorted([name async for name in list_sessions(queue)]) == ["a", "b"]
    aio.ns.create_topic("with-sessions")
    aio.ns.create_subscription("with-sessions", "s", requires_session=True)
    topic_sender = await aio.keep(aio.client.get_topic_sender("with-sessions"))
    await topic_sender.send_messages(ServiceBusMessage("x", session_id="d"))
    listed = aio.client.list_subscription_sessions("with-sessions", "s")
    assert [name async for name in listed] == ["d"]


@pytest.mark.covers(
    "aio.ServiceBusSender.schedule_messages", "aio.ServiceBusSender.cancel_scheduled_messages"
)
async def test_scheduling(aio) -> None:
    queue = aio.queue()
    sender = await aio.sender(queue)
    later = datetime.now(UTC) + timedelta(hours=1)
    numbers = await sender.schedule_messages(
        [ServiceBusMessage("a"), ServiceBusMessage("b")], later
    )
    await sender.cancel_scheduled_messages(numbers[:1])
    assert aio.ns.do(lambda ns: ns.admin.runtime(queue)).scheduled_message_count == 1


@pytest.mark.covers("aio.AutoLockRenewer.register", "aio.ServiceBusReceiver.client_identifier")
@pytest.mark.covers("aio.ServiceBusSender.client_identifier")
async def test_iteration_with_a_renewer(aio) -> None:
    queue = aio.queue()
    sender = await aio.sender(queue)
    await sender.send_messages([ServiceBusMessage(str(n)) for n in range(5)])
    async with AutoLockRenewer() as renewer:
        receiver = await aio.receiver(queue, auto_lock_renewer=renewer, prefetch_count=2)
        assert receiver.client_identifier
        assert sender.client_identifier
        seen = []
        async for message in receiver:
            seen.append(str(message))
            await receiver.complete_message(message)
            if len(seen) == 5:
                break
    assert seen == [*map(str, range(5))]


@pytest.mark.covers("aio.ServiceBusClient.get_topic_sender")
@pytest.mark.covers("aio.ServiceBusClient.get_subscription_receiver")
async def test_topics(aio) -> None:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    aio.ns.create_topic(topic)
    aio.ns.create_subscription(topic, "s")
    sender = await aio.keep(aio.client.get_topic_sender(topic))
    await sender.send_messages(ServiceBusMessage("x"))
    receiver = await aio.keep(aio.client.get_subscription_receiver(topic, "s"))
    [message] = await aio.take(receiver)
    await receiver.complete_message(message)


async def test_receive_and_delete(aio) -> None:
    queue = aio.queue()
    sender = await aio.sender(queue)
    await sender.send_messages([ServiceBusMessage(str(n)) for n in range(100)])
    receiver = await aio.receiver(queue, receive_mode="receiveanddelete", prefetch_count=50)
    assert [str(m) for m in await aio.take(receiver, 100)] == [*map(str, range(100))]


async def test_errors(aio) -> None:
    queue = aio.queue()
    with pytest.raises(MessagingEntityNotFoundError):
        await aio.client.get_queue_sender("nowhere").__aenter__()
    sender = await aio.sender(queue)
    with aio.ns.faults.throttle(queue), pytest.raises(ServiceBusServerBusyError):
        await sender.send_messages(ServiceBusMessage("x"))
    with aio.ns.faults.refuse(), pytest.raises(ServiceBusConnectionError):
        await aio.client.get_queue_sender(queue).__aenter__()
