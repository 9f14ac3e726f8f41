# generated from tests/pairing/_async/test_rotation.py by tools/gen_unasync.py; edit that one
"""Backlog queues that fail, and both namespaces down."""

from functools import partial

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from pairbus import events
from pairbus.exceptions import PairUnavailableError, PartlySentError
from pairbus.pairing._sync.link import Link
from pairbus.pairing.runtime import sleep, spawn
from pairbus.testing import FaultProxy

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def pick(sender, path):
    """Let chance pick `path` for the sender."""
    make = partial(sender._pair.secondary.get_queue_sender, path)  # noqa: SLF001 - chance decides
    sender._backlog.current = Link(make, path, path)  # noqa: SLF001 - chance decides


def queues(client):
    return {status.path: status for status in client.status().backlog_queues}


def test_each_sender_stays_with_the_queue_it_picked(world):
    client = world.pair(backlog_queue_count=5)
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))

    for number in range(10):
        sender.send_messages(ServiceBusMessage(str(number)))

    assert len({event.backlog_queue for event in world.seen.of(events.MessageBacklogged)}) == 1
    assert [m.body for m in world.backlog()] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize(
    "condition",
    ["amqp:internal-error", "amqp:resource-limit-exceeded"],
)
def test_failing_queue_leaves_for_all_senders_and_returns_after_a_probe(world, condition):
    client = world.pair(backlog_cooldown=1)
    client.force_failover("orders")
    first, second = (world.keep(client.get_queue_sender("orders")) for _ in range(2))
    bad, good = (f"contoso/x-servicebus-transfer/{index}" for index in range(2))
    fault = world.secondary.faults.reject(condition, bad)

    # Both have picked the bad one, and end up in the good one.
    pick(first, bad)
    pick(second, bad)
    first.send_messages(ServiceBusMessage("a"))
    second.send_messages(ServiceBusMessage("b"))

    assert world.bodies(world.secondary, good) == [b"a", b"b"]
    assert fault.hits == 1
    removed = world.seen.wait(events.BacklogQueueRemoved)
    assert removed.entity == bad
    assert not queues(client)[bad].in_rotation
    assert queues(client)[bad].reason
    fault.clear()
    world.seen.wait(events.BacklogQueueRestored)
    assert queues(client)[bad].in_rotation
    first.send_messages(ServiceBusMessage("c"))  # sticky: it stays where it is
    assert world.bodies(world.secondary, good) == [b"a", b"b", b"c"]


def test_a_full_queue_stays_out_and_costs_no_send_until_there_is_room(world):
    """Its link opens all the same: only something that is sent tells that it is full."""
    client = world.pair(backlog_cooldown=1)
    client.force_failover("orders")
    full, good = (f"contoso/x-servicebus-transfer/{index}" for index in range(2))
    fault = world.secondary.faults.reject("amqp:resource-limit-exceeded", full)
    sent = []

    def send():
        sender = world.keep(client.get_queue_sender("orders"))
        pick(sender, full)
        sent.append(b"%d" % len(sent))
        sender.send_messages(ServiceBusMessage(sent[-1]))

    send()
    while fault.hits < 3:  # the send, and two probes
        sleep(0.02)
        assert not queues(client)[full].in_rotation
    send()
    assert world.bodies(world.secondary, good) == sent
    assert len(world.seen.of(events.BacklogQueueRemoved)) == 1

    fault.clear()
    world.seen.wait(events.BacklogQueueRestored)
    assert queues(client)[full].in_rotation
    assert world.bodies(world.secondary, full) == []  # nobody ever sees the ping
    send()
    assert world.bodies(world.secondary, full) == sent[-1:]


def test_all_queues_full_is_told_and_over_as_soon_as_there_is_room(world):
    client = world.pair(backlog_cooldown=1)
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    fault = world.secondary.faults.reject("amqp:resource-limit-exceeded")

    with pytest.raises(PairUnavailableError) as caught:
        sender.send_messages(ServiceBusMessage("a"))
    assert isinstance(caught.value.secondary, ServiceBusQuotaExceededError)
    fault.clear()
    world.seen.wait(events.BacklogQueueRestored, 2)
    sender.send_messages(ServiceBusMessage("b"))

    assert [m.body for m in world.backlog()] == [b"b"]


def test_queue_that_is_gone_stays_out_until_a_probe_finds_it(world):
    client = world.pair(backlog_cooldown=1)
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    gone = "contoso/x-servicebus-transfer/0"
    world.secondary.do(lambda ns: ns.admin.delete_queue(gone))
    pick(sender, gone)

    sender.send_messages(ServiceBusMessage("a"))

    assert world.bodies(world.secondary, "contoso/x-servicebus-transfer/1") == [b"a"]
    assert "not" in queues(client)[gone].reason.lower()


def test_tasks_that_share_a_sender_all_leave_a_queue_that_fails(world):
    client = world.pair(backlog_queue_count=3)
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    bad = "contoso/x-servicebus-transfer/0"
    pick(sender, bad)
    sender.send_messages(ServiceBusMessage("opens"))
    world.secondary.faults.reject("amqp:internal-error", bad)

    def send(number):
        for turn in range(3):
            sender.send_messages(ServiceBusMessage(f"{number}-{turn}"))

    tasks = [spawn(send, number) for number in range(6)]
    assert all([task.join(30) for task in tasks])

    found = {bytes(m.body) for m in world.backlog()}
    assert found == {b"opens", *(b"%d-%d" % (n, t) for n in range(6) for t in range(3))}
    assert client.status().state == "open"


def test_closing_a_sender_in_use_closes_that_sender_alone(world):
    client = world.pair()
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("opens"))
    fault = world.primary.faults.delay(1.0, "orders")
    failed = []

    def send():
        try:
            sender.send_messages(ServiceBusMessage("a"))
        except ValueError as error:
            failed.append(error)

    task = spawn(send)
    while not fault.hits:
        sleep(0.01)
    sender.close()
    assert task.join(60)

    assert client.status().state == "open"
    assert client.status().entity("orders").phase == "healthy"


def test_both_namespaces_down_names_both_causes(world):
    client = world.pair(failover_interval=3600, send_timeout=1)
    sender = world.keep(client.get_queue_sender("orders"))
    world.primary.kill()
    world.secondary.kill()
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(ServiceBusMessage("a"))
    client.force_failover("orders")

    with pytest.raises(PairUnavailableError) as caught:
        sender.send_messages(ServiceBusMessage("b"))

    error = caught.value
    assert isinstance(error, ServiceBusError)
    assert error.entity == "orders"
    assert isinstance(error.primary, ServiceBusConnectionError)
    assert isinstance(error.secondary, ServiceBusConnectionError)
    status = client.status()
    primary = f"'orders' of the primary {status.primary}"
    assert f"Primary: ServiceBusConnectionError: {primary}:" in str(error)
    assert "Secondary: ServiceBusConnectionError: backlog queue " in str(error)
    assert f" of {status.secondary}:" in str(error)
    assert world.seen.of(events.PairUnavailable)

    # The namespace failed as a whole: that is no reason to remove a queue.
    assert world.seen.of(events.BacklogQueueRemoved) == []


def test_oversize_message_or_missing_right_evicts_nothing(world):
    client = world.pair()
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))

    with (
        world.secondary.faults.reject("amqp:link:message-size-exceeded"),
        pytest.raises(MessageSizeExceededError),
    ):
        sender.send_messages(ServiceBusMessage("a"))
    with (
        world.secondary.faults.reject("amqp:unauthorized-access"),
        pytest.raises(ServiceBusAuthorizationError),
    ):
        sender.send_messages(ServiceBusMessage("a"))
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages([ServiceBusMessage("x" * 2_000_000)])

    assert all(status.in_rotation for status in client.status().backlog_queues)
    assert world.backlog() == []
    sender.send_messages(ServiceBusMessage("b"))


def test_busy_backlog_queue_is_waited_out(world):
    client = world.pair()
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    fault = world.secondary.faults.throttle(times=2)

    sender.send_messages(ServiceBusMessage("a"))

    assert fault.hits == 2
    assert [m.body for m in world.backlog()] == [b"a"]
    assert all(status.in_rotation for status in client.status().backlog_queues)


@pytest.mark.parametrize("is_batch", [False, True])
def test_failure_half_way_says_what_was_taken_and_what_was_not(world, is_batch):
    client = world.pair(backlog_queue_count=1)
    entity = "orders/" + "x" * 100
    client.force_failover(entity)
    sender = world.keep(client.get_queue_sender(entity))
    world.open_backlog_link(sender)
    messages = [ServiceBusMessage("x" * 26_100, message_id=str(n)) for n in range(10)]
    what = messages
    if is_batch:
        what = sender.create_message_batch()
        for item in messages:
            what.add_message(item)
    world.secondary.faults.reject("amqp:resource-limit-exceeded", nth=2)

    with pytest.raises(PartlySentError) as caught:
        sender.send_messages(what, timeout=3)

    error = caught.value
    taken = [m.properties.message_id for m in world.backlog()]
    assert taken == [str(n) for n in range(9)]  # the aliases leave no room for the tenth
    assert [m.message_id for m in error.taken] == taken
    assert [m.message_id for m in error.not_taken] == ["9"]
    assert isinstance(error.cause, PairUnavailableError)
    assert "took 9 of 10" in str(error)


@pytest.fixture
def proxy(world):
    with FaultProxy(world.secondary.connection_string) as made:
        yield made


def fail_over(world, proxy, senders):
    """A client whose secondary is behind the proxy, failed over, with open backlog links."""
    client = world.pair(
        secondary=world.secondary_client(proxy.connection_string),
        backlog_queue_count=10,
        send_timeout=60,
        open_timeout=30,  # a busy machine is no failing queue
    )
    client.force_failover("orders")
    made = [world.keep(client.get_queue_sender("orders")) for _ in range(senders)]
    for sender in made:
        sender.send_messages(ServiceBusMessage("opens"))
    return client, made


def send_in_parallel(senders):
    """Send one message with each sender; returns what was raised."""
    failures = []

    def send(sender):
        try:
            sender.send_messages(ServiceBusMessage("during"))
        except ServiceBusError as error:
            failures.append(error)

    tasks = [spawn(send, sender) for sender in senders]
    return tasks, failures


@pytest.mark.parametrize("seconds", [0.3, 2])
def test_secondary_that_blips_costs_no_queue_and_no_send(world, proxy, seconds):
    client, senders = fail_over(world, proxy, 4)
    proxy.mode = "refuse"
    tasks, failures = send_in_parallel(senders)
    sleep(seconds)
    proxy.mode = "pass"

    assert all([task.join(60) for task in tasks])

    assert failures == []
    assert world.seen.of(events.BacklogQueueRemoved) == []
    assert all(status.in_rotation for status in client.status().backlog_queues)
    assert len(world.backlog()) == 8


def test_one_reset_of_a_healthy_secondary_with_many_senders_costs_no_queue(world, proxy):
    client, senders = fail_over(world, proxy, 12)
    proxy.mode = "reset"
    proxy.mode = "pass"

    tasks, failures = send_in_parallel(senders)
    assert all([task.join(60) for task in tasks])

    assert failures == []
    assert all(status.in_rotation for status in client.status().backlog_queues)


def test_after_an_outage_of_the_secondary_the_next_send_succeeds(world, proxy):
    """Sends that gave up have not emptied the rotation."""
    client, (sender,) = fail_over(world, proxy, 1)
    proxy.mode = "refuse"
    for _ in range(3):
        with pytest.raises(PairUnavailableError):
            sender.send_messages(ServiceBusMessage("lost"), timeout=0.5)
    proxy.mode = "pass"

    sender.send_messages(ServiceBusMessage("after"))

    assert {m.body for m in world.backlog()} == {b"opens", b"after"}
    assert all(status.in_rotation for status in client.status().backlog_queues)
    assert world.seen.of(events.BacklogQueueRemoved) == []


def test_with_no_queue_in_rotation_the_one_that_failed_longest_ago_is_tried(world):
    client = world.pair(backlog_cooldown=3600)
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    fault = world.secondary.faults.reject("amqp:resource-limit-exceeded")
    with pytest.raises(PairUnavailableError):
        sender.send_messages(ServiceBusMessage("a"))
    assert not any(status.in_rotation for status in client.status().backlog_queues)
    longest = world.seen.of(events.BacklogQueueRemoved)[0].entity
    fault.clear()

    sender.send_messages(ServiceBusMessage("b"))

    assert world.bodies(world.secondary, longest) == [b"b"]
    assert queues(client)[longest].in_rotation


def test_silent_queue_is_left_half_way_and_removed_when_another_answers(world):
    client = world.pair()
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    bad, good = (f"contoso/x-servicebus-transfer/{index}" for index in range(2))
    pick(sender, bad)
    sender.send_messages(ServiceBusMessage("opens"))
    world.secondary.faults.hang(bad, take=False)

    sender.send_messages(ServiceBusMessage("a"), timeout=8)  # raises if it were not left

    assert world.bodies(world.secondary, good) == [b"a"]
    assert not queues(client)[bad].in_rotation
