"""Failures that are no evidence of an outage: the entity stays healthy."""

import socket
import time
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus import broker, events
from pairbus.pairing.core import health
from pairbus.pairing.runtime import aspawn
from pairbus.testing import FakeClock, FaultProxy

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def phase(client):
    return client.status().entity("orders").phase


async def test_waiting_for_a_turn_on_a_slow_primary_is_no_outage(world):
    """The primary answers each send in 0.8 s: forty sends on one sender cannot all be in time."""
    client = await world.pair(coalesce=False)
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("opens"))
    world.primary.faults.delay(0.8, "orders")
    late, done = [], []

    async def send():
        try:
            await sender.send_messages(ServiceBusMessage("a"), timeout=4)
            done.append(1)
        except OperationTimeoutError as error:
            late.append(error)

    tasks = [aspawn(send) for _ in range(40)]
    assert all([await task.join(60) for task in tasks])

    assert done
    assert late
    assert phase(client) == "healthy"
    assert world.backlog() == []


async def test_waiting_for_a_turn_on_a_primary_that_throttles_is_no_outage(world):
    client = await world.pair(world.primary_client(retry_total=3), coalesce=False)
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("opens"))
    world.primary.faults.throttle("orders")
    failed = []

    async def send():
        try:
            await sender.send_messages(ServiceBusMessage("a"), timeout=2)
        except (ServiceBusServerBusyError, OperationTimeoutError) as error:
            failed.append(error)

    tasks = [aspawn(send) for _ in range(40)]
    assert all([await task.join(60) for task in tasks])

    assert len(failed) == 40
    assert f"'orders' of the primary {client.status().primary}" in str(failed[0])
    assert phase(client) == "healthy"
    assert world.backlog() == []


async def test_retry_of_a_throttled_send_that_the_deadline_cuts_short_is_no_outage(world):
    """The primary has just answered; the fraction of a second that was left shows nothing."""
    client = await world.pair(world.primary_client(retry_total=3))
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("opens"))
    world.primary.faults.throttle("orders", times=1)
    world.primary.faults.hang("orders", take=False)

    with pytest.raises(ServiceBusServerBusyError):
        await sender.send_messages(ServiceBusMessage("a"), timeout=6)  # the retry has 4.4 s

    assert phase(client) == "healthy"
    assert world.backlog() == []


async def test_sends_that_wait_on_a_silent_primary_are_redirected_with_the_first(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await world.open_backlog_link(sender)
    await sender.send_messages(ServiceBusMessage("opens"))
    world.primary.faults.hang("orders", take=False)
    failed = []

    async def send():
        try:
            await sender.send_messages(ServiceBusMessage("a"), timeout=3)
        except ServiceBusError as error:
            failed.append(error)

    tasks = [aspawn(send) for _ in range(5)]
    assert all([await task.join(60) for task in tasks])

    assert failed == []
    assert len(world.backlog()) == 5


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("com.microsoft:server-busy", ServiceBusServerBusyError),
        ("amqp:resource-limit-exceeded", ServiceBusQuotaExceededError),
        ("amqp:not-found", MessagingEntityNotFoundError),
    ],
)
async def test_detached_link_is_judged_by_its_condition(world, condition, error):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("a"))

    world.primary.faults.detach(condition, "orders")
    with pytest.raises(error):
        await sender.send_messages(ServiceBusMessage("b"))

    assert phase(client) == "healthy"
    assert world.backlog() == []


@pytest.mark.parametrize(
    "idle", [600, 660]
)  # the links are detached; the connection is closed, too
async def test_every_operation_works_on_links_that_were_detached_while_idle(world, idle):
    clock = FakeClock()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with broker.run(namespace="contoso", clock=clock) as primary:
        primary.create_queue("orders")
        client = await world.pair(
            world.primary_client(primary.connection_string), failover_interval=3600
        )
        sender = world.keep(client.get_queue_sender("orders"))
        await sender.send_messages(ServiceBusMessage("a"))
        numbers = await sender.schedule_messages(ServiceBusMessage("later"), tomorrow)
        for operation in (
            lambda: sender.schedule_messages(ServiceBusMessage("later"), tomorrow),
            lambda: sender.cancel_scheduled_messages(numbers),
            sender.create_message_batch,
            lambda: sender.send_messages(ServiceBusMessage("b")),
            lambda: sender.send_messages([ServiceBusMessage("c"), ServiceBusMessage("d")]),
        ):
            clock.advance(600)
            clock.advance(idle - 600)
            await operation()

        found = world.bodies(primary, "orders")
        assert found == [b"a", b"later", b"b", b"c", b"d"]
        assert phase(client) == "healthy"
        await sender.close()
        await client.close()


async def test_expired_token_is_replaced_without_the_caller_noticing(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    for link in ("_primary", "_backlog"):
        await sender.send_messages(ServiceBusMessage("a"))
        opened = getattr(sender, link)
        opened = opened if link == "_primary" else opened.current
        ready = opened.connection.ready
        ready.authenticator._expires_on = int(time.time()) - 10  # noqa: SLF001 - the SDK reads the expiry from here
        ready.expires_on = ready.good_until = 0.0
        await sender.send_messages(ServiceBusMessage("b"))
        await client.force_failover("orders")

    assert world.bodies(world.primary, "orders") == [b"a", b"b"]
    assert [m.body for m in world.backlog()] == [b"a", b"b"]
    assert world.seen.of(events.BacklogQueueRemoved) == []


@pytest.mark.parametrize("reopen", [True, False])
async def test_one_reset_of_an_open_link_is_repeated_once(world, reopen):
    with FaultProxy(world.primary.connection_string) as proxy:
        # The client wants no retries.
        client = await world.pair(
            world.primary_client(proxy.connection_string), failover_interval=3600, reopen=reopen
        )
        sender = world.keep(client.get_queue_sender("orders"))
        await sender.send_messages(ServiceBusMessage("a"))
        proxy.mode = "reset"
        proxy.mode = "pass"

        if reopen:
            await sender.send_messages(ServiceBusMessage("b", message_id="b"))
            assert phase(client) == "healthy"
            assert b"b" in world.bodies(world.primary, "orders")
        else:
            with pytest.raises(ServiceBusConnectionError):
                await sender.send_messages(ServiceBusMessage("b"))
            assert phase(client) == "suspect"


async def test_error_before_failover_says_when_sends_go_to_the_backlog(world):
    client = await world.pair(failover_interval=50)
    sender = world.keep(client.get_queue_sender("orders"))
    world.primary.kill()

    with pytest.raises(ServiceBusConnectionError) as caught:
        await sender.send_messages(ServiceBusMessage("a"))

    text = str(caught.value)
    assert "sends to 'orders' will go to the backlog in 50 s (failover_interval)" in text
    assert caught.value.message == text


async def test_silence_while_opening_takes_one_open_timeout_and_is_not_retried(world, monkeypatch):
    monkeypatch.setattr(health, "first_gap", lambda timing: 3600.0)  # no ping
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = world.primary.connection_string.replace(f":{world.primary.port}", f":{port}")
        client = await world.pair(
            world.primary_client(text, retry_total=3), open_timeout=1, send_timeout=300
        )
        sender = world.keep(client.get_queue_sender("orders"))

        started = monotonic()
        await sender.send_messages(ServiceBusMessage("a"))

        assert monotonic() - started >= 1
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # there was one connection, and no other
            silent.accept()
        assert [m.body for m in world.backlog()] == [b"a"]


async def test_refused_connection_is_retried_once_before_the_redirect(world):
    """With an interval of 0 there is somewhere else to go: the application's retries can wait."""
    client = await world.pair(
        world.primary_client(retry_total=5, retry_backoff_factor=120, retry_mode="fixed"),
        send_timeout=600,
    )
    sender = world.keep(client.get_queue_sender("orders"))
    world.primary.kill()

    started = monotonic()
    await sender.send_messages(ServiceBusMessage("a"))

    assert monotonic() - started < 100
    assert [m.body for m in world.backlog()] == [b"a"]


async def test_host_that_refuses_is_evidence_for_all_entities_of_the_client(world):
    """A request that sends to three queues pays for the outage once."""
    for name in ("bills", "mails"):
        world.primary.create_queue(name)
    client = await world.pair()
    orders, bills = (world.keep(client.get_queue_sender(name)) for name in ("orders", "bills"))
    world.primary.kill()

    await orders.send_messages(ServiceBusMessage("a"))
    assert client.status().entity("bills").phase == "failed_over"
    mails = world.keep(client.get_queue_sender("mails"))
    assert client.status().entity("mails").phase == "failed_over"
    await bills.send_messages(ServiceBusMessage("b"))
    await mails.send_messages(ServiceBusMessage("c"))

    assert len(world.backlog()) == 3
