# generated from tests/client/_async/test_service_conditions.py by tools/gen_unasync.py; edit that one
"""What the service does to well-behaved clients: idle links, throttling, expired tokens."""

import pytest

from pairbus.amqp.events import Attached, Delivery, Flowed
from pairbus.amqp.performatives import ACCEPTED, Error
from pairbus.client import ConnectionLostError, LinkDetachedError, RejectedError
from pairbus.client import BulkConnection
from pairbus.runtime import ThreadRuntime
from tests.client.support import Peer, is_entity, message

runtime = ThreadRuntime()
IDLE = "amqp:link:detach-forced"
BUSY = "com.microsoft:server-busy"
EXPIRED = "amqp:unauthorized-access"


def take_everything(peer, event):
    """Accept each message that arrives, and give one message for each receive."""
    if is_entity(event):
        peer.engine.settle(event.link, event.delivery_id, state=ACCEPTED)
    elif isinstance(event, Flowed) and event.link is not None and event.link.drain:
        peer.engine.transfer(event.link, b"one", b"t" * 16)


@pytest.mark.parametrize("condition", [IDLE, BUSY, EXPIRED])
@pytest.mark.parametrize("how", ["send_batch", "send_each", "post"])
def test_sender_that_was_detached_while_idle_sends_again(condition, how):
    with Peer(take_everything) as peer, BulkConnection(**peer.address) as client:
        sender = client.sender("q")
        peer.detach("q", condition)
        runtime.sleep(0.05)  # nobody reads; the detach waits in the socket
        if how == "post":
            (outcome,) = sender.post([message(1)]).wait()
        else:
            (outcome,) = getattr(sender, how)([message(1)])
        assert outcome.is_accepted
        assert len(peer.links_to("q")) == 2


@pytest.mark.parametrize("condition", [IDLE, BUSY, EXPIRED])
def test_receiver_that_was_detached_while_idle_receives_again(condition):
    with Peer(take_everything) as peer, BulkConnection(**peer.address) as client:
        receiver = client.receiver("q")
        peer.detach("q", condition)
        runtime.sleep(0.05)
        assert [one.payload for one in receiver.receive_now(1)] == [b"one"]
        assert len(peer.links_to("q")) == 2


def test_long_poll_that_the_service_cuts_ends_without_a_message_and_can_be_repeated():
    def cut_first(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 1:
            if len(peer.links_to("q")) == 1:
                peer.engine.detach(event.link, Error(IDLE, "Idle timeout: 00:10:00."))
            else:
                peer.engine.transfer(event.link, b"one", b"t" * 16, settled=True)

    with Peer(cut_first) as peer, BulkConnection(**peer.address) as client:
        receiver = client.receiver("q")
        assert receiver.wait(30) is False
        assert receiver.wait(30) is True


def test_expired_token_is_replaced_before_the_link_is_attached_again():
    puts = []

    def act(peer, event):
        if isinstance(event, Delivery) and event.link.target.address == "$cbs":
            puts.append(len(peer.links_to("q")))
        take_everything(peer, event)

    with Peer(act) as peer, BulkConnection(**peer.address) as client:
        sender = client.sender("q")
        peer.detach("q", EXPIRED, "ExpiredToken")
        runtime.sleep(0.05)
        assert (sender.send_batch([message(1)]))[0].is_accepted
        assert puts == [0, 1]


def test_tokens_are_put_on_a_new_link_when_the_old_one_was_detached():
    with Peer(take_everything) as peer, BulkConnection(**peer.address) as client:
        client.sender("q")
        peer.detach("$cbs", IDLE)
        runtime.sleep(0.05)
        assert not (client.sender("r")).is_detached


def test_management_link_that_was_detached_while_idle_is_opened_again(connection, queue, ns):
    management = connection.management(queue)
    assert management.peek() == []
    with connection.mux.condition:
        links = management._links  # noqa: SLF001 - detaches a link that the client does not show
        connection.mux.engine.detach(links.link)
        connection.mux.flush()
    while not links.is_detached:
        runtime.sleep(0.01)
        with connection.mux.condition:
            connection.mux.poll()
    assert management.peek() == []


def test_link_that_cannot_be_attached_again_says_why():
    def refuse_second(peer, event):
        if isinstance(event, Attached) and len(peer.links_to("q")) == 2:
            peer.engine.detach(event.link, Error("amqp:not-found", "gone"))

    with Peer(refuse_second) as peer, BulkConnection(**peer.address) as client:
        sender = client.sender("q")
        peer.detach("q", IDLE)
        runtime.sleep(0.05)
        (outcome,) = sender.send_batch([message(1)])
        assert isinstance(outcome.error, LinkDetachedError)
        assert outcome.error.condition == "amqp:not-found"


def test_detach_while_a_send_is_under_way_leaves_its_outcome_unknown():
    def act(peer, event):
        if is_entity(event):
            peer.engine.detach(event.link, Error(IDLE))

    with Peer(act) as peer, BulkConnection(**peer.address) as client:
        sender = client.sender("q")
        (outcome,) = sender.send_batch([message(1)])
        assert isinstance(outcome.error, LinkDetachedError)
        assert outcome.error.condition == IDLE


def test_messages_of_a_detached_link_are_not_settled_on_the_new_one():
    with Peer(take_everything) as peer, BulkConnection(**peer.address) as client:
        receiver = client.receiver("q")
        old = receiver.receive_now(1)
        peer.detach("q", IDLE)
        runtime.sleep(0.05)
        receiver.receive_now(1)
        (error,) = receiver.settle(old)
        assert isinstance(error, RejectedError)
        assert error.condition == "com.microsoft:message-lock-lost"


def test_connection_closed_for_having_no_links_is_noticed_before_it_is_used():
    text = "did not have any active links in the past 60000 milliseconds"
    with Peer() as peer, BulkConnection(**peer.address) as client:
        sender = client.sender("q")
        with peer.lock:
            peer.engine.close(Error("amqp:connection:forced", text))
            peer.socket.sendall(peer.engine.data_to_send())
        runtime.sleep(0.05)
        (outcome,) = sender.send_batch([message(1)])
        assert isinstance(outcome.error, ConnectionLostError)
        assert outcome.error.description == text
        assert not client.is_usable


def test_throttled_send_is_refused_with_the_condition_and_the_link_stays(
    ns, connection, queue
):
    sender = connection.sender(queue)
    with ns.faults.throttle(entity=queue):
        (outcome,) = sender.send_batch([message(1)])
    assert isinstance(outcome.error, RejectedError)
    assert outcome.error.condition == BUSY
    assert (sender.send_batch([message(1)]))[0].is_accepted


# -- round trips


def test_receive_bounded_in_bytes_asks_ahead_of_what_arrives():
    credits = []

    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.drain:
            credits.append(event.link.credit)
            # Half of the first window and no more, until the next request is here.
            count = 32 if len(credits) == 1 else event.link.credit
            for _ in range(count):
                peer.engine.transfer(event.link, b"x" * 1000, b"t" * 16)

    with Peer(act) as peer, BulkConnection(**peer.address) as client:
        receiver = client.receiver("q")
        received = receiver.receive_now(500, max_bytes=10_000_000, timeout=10)
        assert len(received) == 500
        assert not receiver.broke_off
        assert credits == [64, 500 - 32]
