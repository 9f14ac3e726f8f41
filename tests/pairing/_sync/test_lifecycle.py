# generated from tests/pairing/_async/test_lifecycle.py by tools/gen_unasync.py; edit that one
"""Closed and faulted: states of ours, since the SDK's clients have none."""

import gc
from functools import partial
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus import ServiceBusSender

from pairbus import events
from pairbus import pair_namespace
from pairbus.exceptions import ClientClosedError, ClientFaultedError
from pairbus.options import SyphonOptions
from pairbus.pairing import syphon_hook
from pairbus.pairing._sync import lifecycle as shell
from pairbus.pairing.core import health
from pairbus.pairing.runtime import Event, sleep, spawn

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


class Syphon:
    """Stands for the syphon that runs in this process: here only its being there matters."""

    def __init__(self):
        self.stopped = False

    def stop(self):
        self.stopped = True


@pytest.fixture
def syphon_of(world, monkeypatch):
    """Returns options with which the pair starts the given stand-in as its syphon."""

    def options(syphon):
        monkeypatch.setattr(syphon_hook, "_start", lambda options: syphon)
        sides = world.primary.connection_string, world.secondary.connection_string
        return {
            "enable_syphon": True,
            "syphon": SyphonOptions(primary=sides[0], secondary=sides[1]),
        }

    return options


def test_sdk_client_closed_behind_our_back_is_noticed_at_the_next_use(world):
    primary = world.primary_client()
    client = world.pair(primary)
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))

    primary.close()

    for _ in range(2):
        with pytest.raises(ClientClosedError, match="SDK client below it was closed"):
            sender.send_messages(ServiceBusMessage("b"))
    assert client.status().state == "closed"
    assert world.backlog() == []


def test_sdk_client_closed_within_a_send_leaves_no_connection_open(world, monkeypatch):
    """As by a signal handler of the application, on the thread that sends."""
    primary = world.primary_client()
    client = world.pair(primary)
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))
    send = ServiceBusSender.send_messages

    def close_and_send(self, message, **options):
        primary.close()
        send(self, message, **options)

    monkeypatch.setattr(ServiceBusSender, "send_messages", close_and_send)
    with pytest.raises(ClientClosedError, match="SDK client below it was closed"):
        sender.send_messages(ServiceBusMessage("b"))
    eventually(lambda: world.primary.connections == 0)


def test_secondary_closed_behind_our_back_is_noticed_by_a_redirected_send(world):
    secondary = world.secondary_client()
    client = world.pair(secondary=secondary)
    while client.status().unprotected is not None:  # the SDK cannot close while we open a link
        sleep(0.01)
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))

    secondary.close()

    with pytest.raises(ClientClosedError, match="secondary client is closed"):
        sender.send_messages(ServiceBusMessage("b"))
    assert client.status().state == "open"
    client.force_primary("orders")
    sender.send_messages(ServiceBusMessage("c"))
    assert world.bodies(world.primary, "orders") == [b"c"]


def test_where_the_syphon_runs_the_one_still_open_is_faulted(world, syphon_of, monkeypatch):
    monkeypatch.setattr(shell, "FAULT_AFTER", 0.2)
    client = world.pair(**syphon_of(Syphon()))
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))
    receiver = client.get_queue_receiver("orders", max_wait_time=1)

    client.secondary.close()
    faulted = world.seen.wait(events.ClientFaulted)

    assert faulted.side == "paired"
    assert client.status().state == "faulted"
    for _ in range(2):
        with pytest.raises(ClientFaultedError, match="secondary client is down") as caught:
            sender.send_messages(ServiceBusMessage("b"))
        assert "not closed within" in caught.value.reason
        with pytest.raises(ClientFaultedError):
            receiver.receive_messages()
    with pytest.raises(ClientFaultedError):
        client.get_queue_sender("orders")
    client.close()
    with pytest.raises(ClientFaultedError, match="secondary client is down"):
        sender.send_messages(ServiceBusMessage("c"))


def test_sender_of_a_closed_client_says_so(world):
    client = world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))

    client.close()

    with pytest.raises(ClientClosedError, match=r"close\(\) was called"):
        sender.send_messages(ServiceBusMessage("b"))
    with pytest.raises(ClientClosedError):
        sender.create_message_batch()


def test_secondary_is_faulted_where_the_primary_is_down(world, syphon_of, monkeypatch):
    monkeypatch.setattr(shell, "FAULT_AFTER", 0.2)
    primary = world.primary_client()
    client = world.pair(primary, **syphon_of(Syphon()))
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))
    receiver = client.secondary.get_queue_receiver("contoso/x-servicebus-transfer/0")

    primary.close()
    with pytest.raises(ClientClosedError):
        sender.send_messages(ServiceBusMessage("b"))
    faulted = world.seen.wait(events.ClientFaulted)

    assert faulted.side == "secondary"
    with pytest.raises(ClientFaultedError, match="paired client is down"):
        client.secondary.get_queue_sender("x")
    with pytest.raises(ClientFaultedError):
        receiver.receive_messages()


def test_closing_both_in_time_faults_none_and_stops_the_syphon(world, syphon_of, monkeypatch):
    watches = []

    def hold_watch(function, *args, name):
        if name == "pairbus fault watch":
            watches.append(partial(function, *args))
            return None
        return spawn(function, *args, name=name)

    monkeypatch.setattr(shell, spawn.__name__, hold_watch)
    monkeypatch.setattr(shell, "FAULT_AFTER", 0)
    syphon = Syphon()
    client = world.pair(**syphon_of(syphon))

    client.secondary.close()
    client.close()
    [watch] = watches
    watch()  # the time is over

    assert syphon.stopped
    assert world.seen.of(events.ClientFaulted) == []
    assert client.status().state == "closed"


def test_syphon_that_does_not_stop_keeps_nothing_open(world, syphon_of, caplog):
    class Stuck(Syphon):
        def stop(self):
            raise RuntimeError("the query is stuck")

    primary, secondary = world.primary_client(), world.secondary_client()
    client = world.pair(primary, secondary, **syphon_of(Stuck()))
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))

    client.close()

    assert "the query is stuck" in caplog.text
    eventually(lambda: world.primary.connections == 0)
    again = world.pair(primary, secondary)  # both are free again
    assert again.status().state == "open"


def test_close_ends_every_receiver_though_a_sender_is_made_meanwhile(world):
    """The SDK's own close stops half-way then: its set of handlers changed."""
    primary = world.primary_client()
    client = world.pair(primary)
    receivers = [client.get_queue_receiver("orders")._wrapped for _ in range(3)]  # noqa: SLF001 - the SDK object must be watched

    def meddle(receiver, close):
        def closed():
            if not receiver._shutdown.is_set():  # noqa: SLF001 - the SDK shows it nowhere else
                world.keep(primary.get_queue_sender("orders"))
            close()

        return closed

    for receiver in receivers:
        receiver.close = meddle(receiver, receiver.close)

    client.close()

    assert all(receiver._shutdown.is_set() for receiver in receivers)  # noqa: SLF001 - the SDK shows it nowhere else


def test_nothing_is_pinged_for_a_client_that_was_closed_behind_our_back(world, monkeypatch):
    monkeypatch.setattr(health, "first_gap", lambda timing: 60.0)
    world.primary.create_queue("bills")
    primary = world.primary_client()
    client = world.pair(primary, ping_primary_interval=60)
    orders = world.keep(client.get_queue_sender("orders"))
    bills = world.keep(client.get_queue_sender("bills"))
    orders.send_messages(ServiceBusMessage("a"))
    with world.primary.faults.reject("amqp:internal-error", entity="bills"):
        bills.send_messages(ServiceBusMessage("redirected"))
    assert client.status().entity("bills").next_ping is not None

    primary.close()
    with pytest.raises(ClientClosedError):
        orders.send_messages(ServiceBusMessage("b"))

    assert client.status().entity("bills").next_ping is None


def test_without_a_syphon_the_other_stays_open(world, monkeypatch):
    monkeypatch.setattr(shell, "FAULT_AFTER", 0.0)
    client = world.pair()
    sender = world.keep(client.get_queue_sender("orders"))

    client.secondary.close()
    client.secondary.close()
    sender.send_messages(ServiceBusMessage("a"))

    assert world.bodies(world.primary, "orders") == [b"a"]
    client.force_failover("orders")
    with pytest.raises(ClientClosedError, match="secondary"):
        sender.send_messages(ServiceBusMessage("b"))


def test_sender_that_the_application_drops_is_closed(world):
    """The SDK's own would keep its connection open, and itself alive, as long as the process."""
    client = world.pair()
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("a"))
    client.force_failover("orders")
    sender.send_messages(ServiceBusMessage("b"))
    links = (sender._primary, sender._backlog.current)  # noqa: SLF001 - the SDK object must be watched
    closings = [closing(link.connection.sender) for link in links]
    del links

    del sender
    gc.collect()

    for closed in closings:
        assert closed.wait(60)
    other = world.keep(client.get_queue_sender("orders"))
    other.send_messages(ServiceBusMessage("c"))
    assert {message.body for message in world.backlog()} == {b"b", b"c"}


def closing(sdk_sender):
    """Happens when the SDK's sender has been closed."""
    closed, close = Event(), sdk_sender.close

    def close_and_tell():
        close()
        closed.set()

    sdk_sender.close = close_and_tell
    return closed


def test_sender_that_is_closed_is_not_closed_again_when_it_is_dropped(world):
    client = world.pair()
    with client.get_queue_sender("orders") as sender:
        link = sender._primary  # noqa: SLF001 - the SDK object must be watched
        assert link.connection._cancel_drop is not None  # noqa: SLF001 - a second close has no effect outside
        sender.send_messages(ServiceBusMessage("a"))

    assert link.connection._cancel_drop is None  # noqa: SLF001 - a second close has no effect outside
    assert link.connection.sender is None


def test_client_that_is_dropped_during_an_outage_stops_its_pings(world):
    client = pair_namespace(world.primary_client(), world.options())
    sender = client.get_queue_sender("orders")
    world.primary.kill()
    sender.send_messages(ServiceBusMessage("a"))
    world.seen.wait(events.PingSent)
    entity = client._lifecycle.pair.entity("orders")  # noqa: SLF001 - outlives the dropped client

    del client, sender
    gc.collect()

    eventually(lambda: entity.next_ping is None)


def test_closing_client_lets_a_ping_that_is_under_way_end(world, monkeypatch):
    monkeypatch.setattr(shell, "CLOSE_WAIT", 60.0)
    client = world.pair()
    client.force_failover("orders")
    client.release("orders")  # sends a ping immediately

    client.close()

    assert not [event.reason for event in world.seen.of(events.PingSent) if not event.succeeded]


def eventually(happened):
    """Wait until something is true that no event reports."""
    ended = monotonic() + 60
    while not happened():
        assert monotonic() < ended
        sleep(0.05)
