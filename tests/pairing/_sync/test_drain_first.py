# generated from tests/pairing/_async/test_drain_first.py by tools/gen_unasync.py; edit that one
"""`recovery="drain_first"`: sends follow the backlog home, so that none overtakes."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus import ServiceBusClient, ServiceBusReceiver

from pairbus import PairUnavailableError, events
from pairbus.envelope.fence import FENCE_CONTENT_TYPE
from pairbus.pairing._sync import drain, replies
from pairbus.pairing.core import draining
from pairbus.pairing.fences import release_message
from pairbus.pairing.runtime import sleep
from pairbus.testing import SENDER
from tests.pairing._sync.conftest import BACKLOG
from tests.syphon.drains import RunningDrain

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

QUEUES = [f"{BACKLOG}/0", f"{BACKLOG}/1"]


def test_sends_go_to_the_primary_again_when_the_backlog_is_delivered(world, tmp_path):
    client, sender = drained_first(world)
    sender.send_messages(ServiceBusMessage("behind it"))

    with RunningDrain(world.primary, world.secondary, QUEUES, tmp_path):
        restored = world.seen.wait(events.Restored, seconds=60)
        sender.send_messages(ServiceBusMessage("direct"))

    assert restored.by == "fence"
    assert world.bodies(world.primary, "orders") == [b"in the backlog", b"behind it", b"direct"]
    assert world.backlog() == []
    assert client.status().entity("orders").phase == "healthy"


def drained_first(world, **changes):
    """A client whose entity `orders` was failed over and is draining, without a syphon."""
    client = world.pair(recovery="drain_first", **changes)
    sender = world.keep(client.get_queue_sender("orders"))
    client.force_failover("orders")
    sender.send_messages(ServiceBusMessage("in the backlog"))
    client.release("orders")
    world.seen.wait(events.Draining)
    return client, sender


def test_without_a_syphon_sends_go_on_to_the_backlog_until_an_operator_ends_the_drain(world):
    client, sender = drained_first(world)

    sender.send_messages(ServiceBusMessage("behind it"))
    status = client.status().entity("orders")
    assert status.phase == "draining"
    assert status.drain.waits_for == (status.backlog_queue,)
    assert not status.drain.is_overdue
    assert world.bodies(world.primary, "orders") == []

    client.end_draining("Orders")
    sender.send_messages(ServiceBusMessage("overtakes"))
    assert world.bodies(world.primary, "orders") == [b"overtakes"]
    assert world.seen.of(events.Restored)[-1].by == "operator"
    [lost] = world.seen.of(events.OrderNotKept)
    assert lost.reason == "an operator ended the drain"
    assert client.status().entity("orders").drain is None


def test_a_send_into_the_backlog_with_an_unknown_outcome_is_waited_for(world):
    client = world.pair(recovery="drain_first", backlog_queue_count=1)
    sender = world.keep(client.get_queue_sender("orders"))
    client.force_failover("orders")
    world.open_backlog_link(sender)
    with world.secondary.faults.hang(QUEUES[0]), pytest.raises(PairUnavailableError):
        sender.send_messages(ServiceBusMessage("stored, and never answered"), timeout=2)

    client.release("orders")
    fences(world, 1)

    assert client.status().entity("orders").drain.waits_for == (QUEUES[0],)
    assert world.seen.of(events.Restored) == []


def test_a_copy_that_another_backlog_queue_may_have_is_reported_as_lost_order(world):
    client = world.pair(recovery="drain_first")
    sender = world.keep(client.get_queue_sender("orders"))
    client.force_failover("orders")
    sender.send_messages(ServiceBusMessage("first"))
    first = client.status().entity("orders").backlog_queue
    [other] = {*QUEUES} - {first}
    with (
        world.secondary.faults.reject("com.microsoft:entity-disabled", first),
        world.secondary.faults.hang(other),
        pytest.raises(PairUnavailableError),
    ):
        sender.send_messages(ServiceBusMessage("stored, and never answered"), timeout=2)

    [lost] = world.seen.of(events.OrderNotKept)
    assert lost.reason == "a sender changed its backlog queue"


def test_an_operator_can_end_the_drain_through_the_reply_queue(world):
    client, _ = drained_first(world)
    operator = world.secondary_client()
    sender = operator.get_queue_sender(f"{BACKLOG}/replies")
    sender.send_messages(release_message("orders", client.status().client_id))

    restored = world.seen.wait(events.Restored)

    assert restored.by == "operator"
    sender.close()
    operator.close()


def fences(world, count):
    """The message ids of the fences in the backlog, once there are `count` of them."""
    found = []
    while len(found) < count:
        sleep(0.02)
        sent = [message.properties for message in world.backlog()]
        found = [one.message_id for one in sent if one.content_type == FENCE_CONTENT_TYPE]
    return found


def test_answers_are_received_after_the_network_lost_the_link_to_the_reply_queue(
    world, monkeypatch
):
    receive, receivers = ServiceBusReceiver.receive_messages, []

    def receive_messages(receiver, **options):
        if receiver not in receivers:
            receivers.append(receiver)
        if receiver is receivers[0]:
            sleep(0.05)  # half open: nothing arrives, and nothing closes it
            return []
        return receive(receiver, **options)

    monkeypatch.setattr(replies, "QUIET", 0.5)
    monkeypatch.setattr(ServiceBusReceiver, "receive_messages", receive_messages)
    client, _ = drained_first(world)
    operator = world.secondary_client()
    with operator.get_queue_sender(f"{BACKLOG}/replies") as sender:
        sender.send_messages(release_message("orders", client.status().client_id))

    assert (world.seen.wait(events.Restored)).by == "operator"


def test_a_fence_that_is_not_answered_is_sent_again_and_reported_once(world, monkeypatch):
    monkeypatch.setattr(draining, "OVERDUE", 0.2)
    monkeypatch.setattr(drain, "OVERDUE", 0.2)
    client, _ = drained_first(world)

    overdue = world.seen.wait(events.FenceOverdue)

    status = client.status().entity("orders")
    assert overdue.backlog_queue == status.backlog_queue
    assert status.drain.is_overdue
    assert f"no answer to the fence in {status.backlog_queue}" in str(client.status())
    assert len(set(fences(world, 3))) == 1  # any copy may be answered
    assert len(world.seen.of(events.FenceOverdue)) == 1


def test_a_client_that_is_closed_while_draining_says_that_the_order_is_lost(world):
    client, _ = drained_first(world)

    client.close()

    [lost] = world.seen.of(events.OrderNotKept)
    assert lost.reason == "the client was closed before its backlog was delivered"


def test_an_entity_without_a_backlog_is_restored_immediately(world):
    client = world.pair(recovery="drain_first")
    client.force_failover("orders")

    client.release("orders")

    assert (world.seen.wait(events.Restored)).by == "fence"


def test_a_healthy_pair_has_no_receiver_and_sends_no_fence(world):
    client = world.pair(recovery="drain_first")
    while client.status().unprotected is not None:  # the check of the reply queue is counted
        sleep(0.02)
    sender = world.keep(client.get_queue_sender("orders"))
    before = world.secondary.operations
    sender.send_messages(ServiceBusMessage("direct"))
    assert world.bodies(world.primary, "orders") == [b"direct"]
    assert world.secondary.operations == before


def test_pairing_needs_the_right_to_listen_at_the_reply_queue(world):
    (world.pair(recovery="drain_first")).close()  # creates the queues
    host = world.secondary.client().fully_qualified_namespace
    sends_only = ServiceBusClient(host, world.secondary.credential(SENDER), use_tls=False)
    world.pair(
        secondary=sends_only,
        secondary_admin=None,
        recovery="drain_first",
        require_secondary=False,
    )

    unprotected = world.seen.wait(events.Unprotected)
    assert "needs the right Listen on the reply queue" in unprotected.reason


def test_scheduled_messages_are_reported_as_out_of_order(world):
    client = world.pair(recovery="drain_first")
    sender = world.keep(client.get_queue_sender("orders"))
    client.force_failover("orders")

    for _ in range(2):
        later = datetime.now(UTC) + timedelta(days=1)
        sender.schedule_messages(ServiceBusMessage("later"), later)

    assert [e.reason for e in world.seen.of(events.OrderNotKept)] == ["messages were scheduled"]
