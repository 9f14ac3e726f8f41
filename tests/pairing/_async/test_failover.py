"""What happens when the primary does not take messages, and when it does again."""

import gc
import weakref
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus import Verdict, events
from pairbus.amqp.types import Long, Timestamp
from pairbus.exceptions import NotCancellableError
from pairbus.pairing.runtime import asleep, aspawn

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


async def test_with_interval_zero_the_very_call_is_redirected_and_a_ping_brings_it_home(world):
    # Given a pair whose primary has died
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("before"))
    world.primary.kill()

    # When a message is sent, the caller sees success
    await sender.send_messages(ServiceBusMessage("during", message_id="m1"))

    [waiting] = world.backlog()
    assert waiting.body == b"during"
    assert waiting.properties.message_id == "m1"
    assert waiting.application_properties == {"x-ms-path": "orders"}
    status = client.status().entity("orders")
    assert status.phase == "failed_over"
    assert "ServiceBusConnectionError" in status.last_error
    assert status.next_ping is not None
    assert status.backlog_queue.startswith("contoso/x-servicebus-transfer/")
    assert repr(sender) == f"<PairedSender orders FAILED_OVER backlog={status.backlog_queue[-1]}>"

    # Then the first ping after it is back ends the failover
    world.primary.start()
    restored = await world.seen.wait(events.Restored)
    assert restored.by == "ping"
    await sender.send_messages(ServiceBusMessage("after"))
    assert world.bodies(world.primary, "orders") == [b"before", b"after"]
    assert client.status().entity("orders").counts.sent_backlog == 1
    assert [e.name for e in world.seen.events if not isinstance(e, events.PingSent)] == [
        "FailedOver",
        "MessageBacklogged",
        "Restored",
    ]
    assert world.seen.of(events.PingSent)[-1].succeeded


async def test_before_the_interval_failures_reach_the_caller_and_the_timer_fires_by_itself(world):
    client = await world.pair(failover_interval=0.5)
    one, two = (world.keep(client.get_queue_sender(name)) for name in ("orders", "ORDERS"))
    world.primary.kill()

    # One failure, then silence.
    with pytest.raises(ServiceBusConnectionError):
        await one.send_messages(ServiceBusMessage("raised"))
    suspected = await world.seen.wait(events.PrimarySuspected)
    assert client.status().entity("orders").phase == "suspect"
    failed_over = await world.seen.wait(events.FailedOver)
    assert failed_over.at >= suspected.deadline - timedelta(milliseconds=50)

    # All senders of the entity follow, whatever case its name has.
    await two.send_messages(ServiceBusMessage("kept"))
    assert [m.body for m in world.backlog()] == [b"kept"]
    assert world.backlog()[0].application_properties == {"x-ms-path": "ORDERS"}


async def test_success_within_the_interval_clears_the_suspicion(world):
    client = await world.pair(failover_interval=3600)
    sender = world.keep(client.get_queue_sender("orders"))
    with world.primary.faults.reject("amqp:internal-error"), pytest.raises(ServiceBusError):
        await sender.send_messages(ServiceBusMessage("a"))
    assert client.status().entity("orders").phase == "suspect"

    await sender.send_messages(ServiceBusMessage("b"))

    assert client.status().entity("orders").phase == "healthy"
    assert world.bodies(world.primary, "orders") == [b"b"]


async def test_other_entities_are_not_affected(world):
    world.primary.create_queue("invoices")
    client = await world.pair()
    orders = world.keep(client.get_queue_sender("orders"))
    invoices = world.keep(client.get_queue_sender("invoices"))
    with world.primary.faults.reject("amqp:internal-error", entity="orders"):
        await orders.send_messages(ServiceBusMessage("o"))
        await invoices.send_messages(ServiceBusMessage("i"))

    assert client.status().entity("orders").phase == "failed_over"
    assert client.status().entity("invoices").phase == "healthy"
    assert world.bodies(world.primary, "invoices") == [b"i"]
    assert [m.body for m in world.backlog()] == [b"o"]


async def test_aliases_carry_what_would_hold_a_message_back(world):
    client = await world.pair()
    await client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    later = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)
    full = ServiceBusMessage(
        "body",
        session_id="s1",
        time_to_live=timedelta(minutes=5),
        scheduled_enqueue_time_utc=later,
        application_properties={"colour": "red"},
        correlation_id="c",
        subject="label",
    )
    full.partition_key = "s1"

    await sender.send_messages(full)
    await sender.send_messages([full])
    batch = await sender.create_message_batch()
    batch.add_message(full)
    await sender.send_messages(batch)

    found = world.backlog()
    assert len(found) == 3
    for message in found:
        names = message.application_properties
        assert names["x-ms-path"] == "orders"
        assert names["x-ms-sessionid"] == "s1"
        assert names["x-ms-timetolive"] == 300_000
        assert type(names["x-ms-timetolive"]) in (int, Long)
        assert names["x-ms-scheduledenqueuetimeutc"] == int(later.timestamp() * 1000)
        assert type(names["x-ms-scheduledenqueuetimeutc"]) is Timestamp
        assert names["colour"] == "red"
        properties = message.properties
        assert properties.group_id is None
        assert properties.absolute_expiry_time is None
        assert (properties.correlation_id, properties.subject) == ("c", "label")
        assert properties.message_id == full.message_id
    assert full.session_id == "s1"
    assert full.time_to_live == timedelta(minutes=5)
    assert full.scheduled_enqueue_time_utc == later
    assert full.application_properties == {"colour": "red"}
    # Nothing waits to appear, and nothing expires.
    receiver = client.secondary.get_queue_receiver(
        client.status().entity("orders").backlog_queue, max_wait_time=5
    )
    async with receiver:
        received = await receiver.receive_messages(max_message_count=3, max_wait_time=5)
        assert len(received) == 3
        assert received[0].partition_key == "s1"


async def test_senders_are_made_entered_and_used_while_the_primary_is_down(world):
    world.primary.kill()
    client = await world.pair()
    async with client.get_queue_sender("orders") as first:
        assert client.status().entity("orders").phase == "failed_over"  # a failed open counts
        await first.send_messages(ServiceBusMessage("a"))
        async with client.get_topic_sender("orders") as second:
            started = monotonic()
            batch = await second.create_message_batch()
            assert monotonic() - started < 30  # it does not even look at the primary
            batch.add_message(ServiceBusMessage("b"))
            batch.add_message(AmqpAnnotatedMessage(value_body=[1, "c"]))
            await second.send_messages(batch)
            await second.send_messages([ServiceBusMessage("d"), {"body": "e"}])

    bodies = [m.body for m in world.backlog()]
    assert all(body in bodies for body in (b"a", b"b", [1, "c"], b"d", b"e"))
    assert len(bodies) == 5
    assert all(m.properties.message_id for m in world.backlog())


async def test_opening_a_sender_raises_what_is_no_outage(world):
    client = await world.pair()

    with pytest.raises(MessagingEntityNotFoundError):
        async with client.get_queue_sender("nowhere"):
            pytest.fail("it does not exist")
    assert client.status().entity("nowhere").phase == "healthy"


@pytest.mark.parametrize("is_batch", [False, True])
async def test_what_no_longer_fits_with_the_aliases_is_split(world, is_batch):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("a-queue-with-a-rather-long-name/" + "x" * 100))
    await client.force_failover(sender.entity_name)
    messages = [ServiceBusMessage(f"{n:03}" + "x" * 2_450, message_id=str(n)) for n in range(100)]
    if is_batch:
        batch = ServiceBusMessageBatch(max_size_in_bytes=262_144)
        for item in messages:
            batch.add_message(item)
        await sender.send_messages(batch)
    else:
        await sender.send_messages(messages)

    found = world.backlog()
    assert [m.properties.message_id for m in found] == [str(n) for n in range(100)]
    backlogged = world.seen.of(events.MessageBacklogged)
    assert len(backlogged) > 1
    assert sum(event.messages for event in backlogged) == 100
    assert backlogged[0].message_ids[0] == "0"
    assert all(event.size <= 262_144 for event in backlogged)


async def test_scheduled_messages_go_to_the_backlog_and_cannot_be_cancelled(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    later = datetime.now(UTC) + timedelta(hours=1)
    plain = ServiceBusMessage("a")
    world.primary.kill()

    numbers = await sender.schedule_messages(plain, later)  # this call fails over
    numbers += await sender.schedule_messages(
        [ServiceBusMessage("b"), ServiceBusMessage("c")], later
    )

    assert len(set(numbers)) == 3
    assert all(number < 0 for number in numbers)
    assert plain.scheduled_enqueue_time_utc is None
    found = world.backlog()
    assert [m.body for m in found] == [b"a", b"b", b"c"]
    for message in found:
        alias = message.application_properties["x-ms-scheduledenqueuetimeutc"]
        assert abs(alias - later.timestamp() * 1000) < 1
    with pytest.raises(NotCancellableError) as caught:
        await sender.cancel_scheduled_messages([5, numbers[0]])
    assert caught.value.sequence_numbers == (numbers[0],)


async def test_send_in_flight_when_failover_is_engaged_is_redirected_not_failed(world):
    # Given a primary that takes messages and never answers, and a long interval
    client = await world.pair(failover_interval=3600)
    sender = world.keep(client.get_queue_sender("orders"))
    await world.open_backlog_link(sender)
    await sender.send_messages(ServiceBusMessage("opens the link"))
    fault = world.primary.faults.hang("orders")
    outcome = []

    async def send():
        await sender.send_messages(ServiceBusMessage("twice", message_id="same"), timeout=3)
        outcome.append("sent")

    # When failover is engaged while the send waits
    task = aspawn(send)
    while not fault.hits:
        await asleep(0.01)
    await client.force_failover("orders")
    assert await task.join(60)

    # Then it goes to the backlog. The primary has taken it too, under the same id.
    assert outcome == ["sent"]
    [copy] = world.backlog()
    assert copy.properties.message_id == "same"
    assert world.messages(world.primary, "orders")[-1].properties.message_id == "same"


async def test_late_success_ends_the_failover_for_all_senders(world):
    client = await world.pair(ping_primary_interval=1800)
    slow, quick = (world.keep(client.get_queue_sender("orders")) for _ in range(2))
    await slow.send_messages(ServiceBusMessage("a"))
    await quick.send_messages(ServiceBusMessage("b"))
    world.primary.faults.delay(1.0, "orders", times=1)
    world.primary.faults.reject("amqp:internal-error", "orders", times=1)

    async def send():
        await slow.send_messages(ServiceBusMessage("late"))

    # The slow send meets the delay first, then the quick one is rejected and fails over.
    task = aspawn(send)
    while not world.primary.faults.active[0].hits:
        await asleep(0.01)
    await quick.send_messages(ServiceBusMessage("redirected"))
    assert world.seen.of(events.FailedOver)
    assert await task.join(60)

    restored = await world.seen.wait(events.Restored)
    assert restored.by == "send"
    await quick.send_messages(ServiceBusMessage("home"))
    assert world.bodies(world.primary, "orders") == [b"a", b"b", b"late", b"home"]
    assert [m.body for m in world.backlog()] == [b"redirected"]


ANSWERS = {
    "com.microsoft:server-busy": ServiceBusServerBusyError,
    "amqp:unauthorized-access": ServiceBusAuthorizationError,
    "amqp:not-found": MessagingEntityNotFoundError,
    "com.microsoft:entity-disabled": MessagingEntityDisabledError,
    "amqp:resource-limit-exceeded": ServiceBusQuotaExceededError,
    "com.microsoft:argument-error": ServiceBusError,
    "amqp:link:message-size-exceeded": ValueError,
}


async def test_an_answer_that_is_no_outage_is_raised_and_never_fails_over(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))

    for condition, error in ANSWERS.items():
        with world.primary.faults.reject(condition), pytest.raises(error):
            await sender.send_messages(ServiceBusMessage("a"))
        assert client.status().entity("orders").phase == "healthy", condition

    assert world.backlog() == []
    await sender.send_messages(ServiceBusMessage("b"))
    assert world.bodies(world.primary, "orders") == [b"b"]


@pytest.mark.parametrize("status", [401, 503])
async def test_authentication_is_an_outage_only_where_it_is_not_answered(world, status):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    world.primary.faults.inject("reject", on="token", status=status)

    if status == 401:
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("a"))
        assert client.status().entity("orders").phase == "healthy"
    else:
        await sender.send_messages(ServiceBusMessage("a"))
        assert client.status().entity("orders").phase == "failed_over"


async def test_a_detached_link_is_decided_by_one_reopen(world):
    client = await world.pair()  # the primary's client wants no retries
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("a"))

    world.primary.faults.detach("com.microsoft:timeout", "orders", times=1)
    await sender.send_messages(ServiceBusMessage("b"))
    assert world.bodies(world.primary, "orders") == [b"a", b"b"]

    world.primary.faults.detach("com.microsoft:timeout", "orders")
    await sender.send_messages(ServiceBusMessage("c"))
    assert [m.body for m in world.backlog()] == [b"c"]


async def test_reopening_finds_the_entity_gone_and_raises_that(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("a"))

    world.primary.do(lambda ns: ns.admin.delete_queue("orders"))

    with pytest.raises(MessagingEntityNotFoundError):
        await sender.send_messages(ServiceBusMessage("b"))
    assert client.status().entity("orders").phase == "healthy"


async def test_the_applications_rule_decides_first(world):
    def rule(error):
        return Verdict.OUTAGE if isinstance(error, ServiceBusServerBusyError) else None

    client = await world.pair(classify=rule)
    sender = world.keep(client.get_queue_sender("orders"))

    with world.primary.faults.throttle("orders"):
        await sender.send_messages(ServiceBusMessage("a"))

    assert [m.body for m in world.backlog()] == [b"a"]


async def test_retries_of_the_application_are_made_and_do_not_take_the_sdks_eleven_seconds(world):
    client = await world.pair(world.primary_client(retry_total=3))
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("opens"))
    fault = world.primary.faults.reject("amqp:internal-error", "orders", times=3)

    await sender.send_messages(ServiceBusMessage("a"))

    assert fault.hits == 3
    assert world.bodies(world.primary, "orders") == [b"opens", b"a"]
    assert client.status().entity("orders").phase == "healthy"


async def test_ping_that_finds_the_entity_gone_makes_sends_raise_until_one_succeeds(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    world.primary.kill()
    await sender.send_messages(ServiceBusMessage("a"))
    world.primary.start()
    world.primary.do(lambda ns: ns.admin.delete_queue("orders"))

    await world.seen.wait(events.PrimaryRefused)
    with pytest.raises(MessagingEntityNotFoundError):
        await sender.send_messages(ServiceBusMessage("b"))
    assert client.status().entity("orders").phase == "failed_over"
    assert "not" in client.status().entity("orders").refused

    world.primary.create_queue("orders")
    await world.seen.wait(events.Restored)
    await sender.send_messages(ServiceBusMessage("c"))
    assert world.bodies(world.primary, "orders") == [b"c"]


async def test_ping_that_is_throttled_leaves_it_failed_over(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    fault = world.primary.faults.reject("amqp:internal-error", "orders", times=1)
    await sender.send_messages(ServiceBusMessage("a"))
    fault.clear()
    busy = world.primary.faults.throttle("orders")

    ping = await world.seen.wait(events.PingSent)
    assert not ping.succeeded
    assert "Busy" in ping.reason
    assert client.status().entity("orders").phase == "failed_over"
    await sender.send_messages(ServiceBusMessage("b"))
    assert len(world.backlog()) == 2
    busy.clear()
    await world.seen.wait(events.Restored)


async def test_entity_that_requires_sessions_takes_the_ping_and_nobody_receives_it(world):
    world.primary.create_queue("sessions", requires_session=True)
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("sessions"))
    world.primary.faults.reject("amqp:internal-error", "sessions", times=1)
    await sender.send_messages(ServiceBusMessage("a", session_id="s"))

    await world.seen.wait(events.Restored)

    assert world.bodies(world.primary, "sessions") == []
    assert world.primary.operations["sessions"]["ping"]["messages"] >= 1


async def test_a_hung_send_times_out_at_our_deadline_with_a_client_at_the_sdks_defaults(world):
    client = await world.pair(
        world.primary_client(retry_total=3), failover_interval=3600, send_timeout=1.5
    )
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("opens"))
    world.primary.faults.hang("orders", take=False)

    with pytest.raises(OperationTimeoutError):
        await sender.send_messages(ServiceBusMessage("a"))
    with pytest.raises(OperationTimeoutError):
        await sender.send_messages(ServiceBusMessage("b"), timeout=0.2)
    assert client.status().entity("orders").phase == "suspect"


class Span:
    """A span of a tracing plugin of azure-core, as an application configures one."""

    def __init__(self, name=None, kind=None, links=None):
        self.names.append((name, len(links or ())))

    def __enter__(self):
        return self

    def __exit__(self, *exc): ...

    def add_attribute(self, key, value): ...

    def to_header(self):
        return {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


async def test_batch_is_redirected_while_the_application_traces(world, monkeypatch):
    monkeypatch.setattr(Span, "names", [], raising=False)
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await client.force_failover("orders")
    settings.tracing_implementation.set_value(Span)
    try:
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("a"))
        await sender.send_messages(batch)
    finally:
        settings.tracing_implementation.unset_value()

    [taken] = world.backlog()
    assert taken.body == b"a"
    assert taken.application_properties["Diagnostic-Id"].startswith("00-")
    assert "ServiceBus.send" in [name for name, _ in Span.names]


async def test_batch_may_be_as_large_as_the_primary_takes_though_that_is_down(world):
    """A premium namespace takes a megabyte and more, which cannot be asked for now."""
    client = await world.pair()
    world.primary.kill()
    await client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))

    batch = await sender.create_message_batch(max_size_in_bytes=1024 * 1024)
    for n in range(4):
        batch.add_message(ServiceBusMessage(bytes(200 * 1024), message_id=str(n)))
    await sender.send_messages(batch)

    assert [m.properties.message_id for m in world.backlog()] == ["0", "1", "2", "3"]


class Held:
    """Something that the application has in a variable."""


async def test_failure_that_is_remembered_keeps_nothing_of_the_caller_alive(world):
    client = await world.pair(failover_interval=60, ping_primary_interval=60)
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("opens"))
    world.primary.kill()
    held = []

    async def call():
        local = Held()
        held.append(weakref.ref(local))
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("a"))

    await call()
    gc.collect()

    assert client.status().entity("orders").last_error
    assert held[0]() is None


async def test_event_says_whether_another_copy_may_be_elsewhere(world, message):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await world.open_backlog_link(sender)
    await sender.send_messages(message("opens"))
    world.primary.faults.hang("orders")

    await sender.send_messages(message("taken by the primary, and not confirmed"), timeout=3)
    await sender.send_messages(message("failed over"))

    found = world.seen.of(events.MessageBacklogged)
    assert [event.is_uncertain for event in found] == [True, False]
    assert len(world.messages(world.primary, "orders")) == 2
