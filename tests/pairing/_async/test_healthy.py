"""While the primary works, a paired sender is the SDK's sender."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus import events
from pairbus.exceptions import OversizeError, ReservedPropertyError
from pairbus.pairing.runtime import aspawn

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

LIMIT = 1 << 20  # the largest message of the Premium tier, which the tests use
LONG = "orders/" + "x" * 200  # an alias with this path takes more than 200 bytes


async def test_every_form_of_message_reaches_the_primary(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    foreign = ServiceBusMessageBatch()
    foreign.add_message(ServiceBusMessage("g"))

    await sender.send_messages(ServiceBusMessage("a", message_id="1"))
    await sender.send_messages(AmqpAnnotatedMessage(data_body=b"b"))
    await sender.send_messages({"body": "c"})
    await sender.send_messages([ServiceBusMessage("d"), {"body": "e"}])
    batch = await sender.create_message_batch()
    batch.add_message(ServiceBusMessage("f"))
    await sender.send_messages(batch)
    await sender.send_messages(foreign)
    await sender.send_messages([])
    await sender.send_messages(await sender.create_message_batch(max_size_in_bytes=1000))

    found = world.messages(world.primary, "orders")
    assert [m.body for m in found] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert found[0].properties.message_id == "1"
    assert all(m.properties.message_id for m in found)
    assert len({m.properties.message_id for m in found}) == 7
    assert all(not m.application_properties for m in found)
    assert world.backlog() == []
    assert client.status().entity("ORDERS").counts.sent_primary == 7


async def test_callers_messages_are_as_before(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    plain = ServiceBusMessage("a", application_properties={"n": 1})
    plain.message_id = None  # the SDK's constructor gives one
    raw = AmqpAnnotatedMessage(value_body="b")

    await sender.send_messages(plain)
    await sender.send_messages([plain, raw])
    numbers = await sender.schedule_messages(plain, datetime.now(UTC) + timedelta(hours=1))
    await sender.cancel_scheduled_messages(numbers)

    assert plain.message_id is None
    assert plain.scheduled_enqueue_time_utc is None
    assert plain.application_properties == {"n": 1}
    assert raw.properties is None
    assert raw.application_properties is None


async def test_messages_can_be_scheduled_and_cancelled(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    later = datetime.now(UTC) + timedelta(hours=1)

    one = await sender.schedule_messages(ServiceBusMessage("a"), later, timeout=5)
    two = await sender.schedule_messages([ServiceBusMessage("b"), ServiceBusMessage("c")], later)
    assert await sender.schedule_messages([], later) == []
    await sender.cancel_scheduled_messages(one[0])
    await sender.cancel_scheduled_messages([])

    assert len(two) == 2
    assert all(number > 0 for number in one + two)
    assert world.bodies(world.primary, "orders") == [b"b", b"c"]


async def test_reserved_names_are_refused_before_anything_is_sent(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    bad = ServiceBusMessage("a", application_properties={"x-ms-path": "elsewhere"})
    worse = ServiceBusMessage("a", application_properties={b"x-ms-sessionid": "s"})

    for what in (bad, worse, [ServiceBusMessage("fine"), bad]):
        with pytest.raises(ReservedPropertyError, match="x-ms-"):
            await sender.send_messages(what)
    batch = await sender.create_message_batch()
    with pytest.raises(ValueError, match="x-ms-path"):
        batch.add_message(bad)

    assert world.bodies(world.primary, "orders") == []


async def test_wrong_arguments_are_refused_as_the_sdk_does(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))

    with pytest.raises(TypeError, match="instances or Mappings"):
        await sender.send_messages(3)
    with pytest.raises(ValueError, match="greater than 0"):
        await sender.send_messages(ServiceBusMessage("a"), timeout=0)
    with pytest.raises(ValueError, match="too large"):
        await sender.create_message_batch(1 << 40)
    with pytest.raises(MessageSizeExceededError):
        await sender.send_messages([ServiceBusMessage("x" * 1_000_000)] * 2)
    with pytest.warns(UserWarning, match="Unsupported keyword"):
        await sender.send_messages(ServiceBusMessage("a"), colour="red")
    with pytest.raises(TypeError):
        client.get_queue_sender()
    assert client.status().entity("orders").phase == "healthy"


async def test_tasks_and_threads_share_a_sender(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("first"))

    async def send(number):
        for turn in range(5):
            await sender.send_messages(ServiceBusMessage(f"{number}-{turn}"))

    tasks = [aspawn(send, number) for number in range(8)]
    assert all([await task.join(60) for task in tasks])

    found = world.bodies(world.primary, "orders")
    assert sorted(found[1:]) == sorted(f"{n}-{t}".encode() for n in range(8) for t in range(5))
    for number in range(8):
        mine = [body for body in found if body.startswith(b"%d-" % number)]
        assert mine == [b"%d-%d" % (number, turn) for turn in range(5)]


async def test_paired_client_is_used_where_the_sdks_is(world):
    async with await world.pair() as client:
        assert isinstance(client, ServiceBusClient)
        assert client.fully_qualified_namespace == f"127.0.0.1:{world.primary.port}"
        async with client.get_queue_sender("orders", client_identifier="me") as sender:
            assert isinstance(sender, ServiceBusSender)
            assert sender.entity_name == "orders"
            assert sender.client_identifier == "me"
            assert sender.fully_qualified_namespace == client.fully_qualified_namespace
            assert str(sender) == "Sender client id: me, entity: orders"
            assert repr(sender) == "<PairedSender orders HEALTHY>"
            await sender.send_messages(ServiceBusMessage("a"))
        assert repr(sender) == "<PairedSender orders CLOSED>"
        with pytest.raises(ValueError, match="already been shutdown"):
            await sender.send_messages(ServiceBusMessage("b"))
        receiver = client.get_queue_receiver("orders", max_wait_time=5)
        assert isinstance(receiver, ServiceBusReceiver)
        async with receiver:
            [received] = await receiver.receive_messages()
            assert str(received) == "a"
            await receiver.complete_message(received)


async def test_topics_are_sent_to_like_queues(world):
    world.primary.create_topic("news")
    world.primary.create_subscription("news", "all")
    client = await world.pair()

    sender = world.keep(client.get_topic_sender("news"))
    await sender.send_messages(ServiceBusMessage("a"))

    receiver = client.get_subscription_receiver("news", "all", max_wait_time=5)
    async with receiver:
        [received] = await receiver.receive_messages()
        assert str(received) == "a"


async def test_message_that_would_not_fit_the_backlog_is_warned_of_while_healthy(world):
    # In the embedded broker the limits of both namespaces are alike: the alias room tips the scale.
    world.primary.create_queue(LONG)
    client = await world.pair()
    sender = world.keep(client.get_queue_sender(LONG))
    big = ServiceBusMessage("x" * (LIMIT - 250))

    await sender.send_messages(ServiceBusMessage("x" * (LIMIT - 10_000)))
    assert world.seen.of(events.OversizeMessage) == []
    await sender.send_messages(big)
    await sender.send_messages([ServiceBusMessage("small"), big])
    batch = await sender.create_message_batch()
    batch.add_message(big)
    await sender.send_messages(batch)

    warned = world.seen.of(events.OversizeMessage)
    assert len(warned) == 3
    assert warned[0].limit == LIMIT < warned[0].size < LIMIT + 1_100
    assert world.primary.operations[LONG]["send"]["messages"] == 5


async def test_oversize_message_can_be_refused_or_ignored(world):
    world.primary.create_queue(LONG)
    client = await world.pair(oversize="refuse")
    sender = world.keep(client.get_queue_sender(LONG))
    big = ServiceBusMessage("x" * (LIMIT - 250))

    with pytest.raises(OversizeError) as caught:
        await sender.send_messages(big)
    assert isinstance(caught.value, MessageSizeExceededError)
    assert caught.value.limit == LIMIT
    assert world.bodies(world.primary, LONG) == []

    ignoring = await world.pair(oversize="ignore")
    await world.keep(ignoring.get_queue_sender(LONG)).send_messages(big)
    assert len(world.bodies(world.primary, LONG)) == 1
    assert world.seen.of(events.OversizeMessage) == []
