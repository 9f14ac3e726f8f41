"""Threads at once: pings, timers and events in step with the state; nothing left open."""

import os
import random
import socket
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusServerBusyError,
)

from pairbus import events
from pairbus.options import SendAvailabilityPairedNamespaceOptions
from pairbus.pairing import forking  # noqa: F401 - it is called in every child process
from pairbus.pairing import runtime as _compat
from pairbus.pairing._sync import connection, primary_route
from pairbus.pairing._sync import link as link_module
from pairbus.pairing._sync.backlog_route import BacklogRoute
from pairbus.pairing._sync.entity import Entity
from pairbus.pairing._sync.link import Link
from pairbus.pairing._sync.pair import Pair
from pairbus.pairing._sync.primary_route import PrimaryRoute, Redirect
from pairbus.pairing._sync.sender import PairedSender
from pairbus.pairing.core import health as core
from pairbus.pairing.core.timing import Timing
from pairbus.pairing.event_bus import EventBus
from pairbus.pairing.outgoing import prepare
from pairbus.pairing.sdk.deadlines import Watch
from pairbus.pairing.sdk.senders import UnwantedError
from pairbus.pairing.turns import TurnTimeoutError

FACTS = [
    core.SendSucceeded(),
    core.SendFailed("x"),
    core.PingSucceeded(),
    core.PingFailed("x"),
    core.BacklogForced(),
    core.PrimaryForced(),
    core.Released(),
]


def entity_of(failover_interval, *observers):
    timing = Timing(
        failover_interval=failover_interval,
        ping_primary_interval=1800.0,
        send_timeout=1.0,
        backlog_cooldown=1.0,
    )
    return Entity("orders", SimpleNamespace(timing=timing, bus=EventBus("a>b", observers)))


def pair_of(*observers, open_timeout=5.0, **client):
    client = SimpleNamespace(fully_qualified_namespace="a.example", **client)
    options = SendAvailabilityPairedNamespaceOptions(
        secondary=client,
        observers=observers,
        backlog_queue_count=1,
        failover_interval=0.0,
        ping_primary_interval=1800.0,
        send_timeout=1.0,
        backlog_cooldown=0.0,
        open_timeout=open_timeout,
    )
    return Pair(client, client, "a", options, "c")


@pytest.mark.parametrize("failover_interval", [0.0, 3600.0])
def test_pings_and_timer_are_what_the_state_says_after_any_race(failover_interval, monkeypatch):
    monkeypatch.setattr(Entity, "_ping", lambda self, stopped: None)
    entity = entity_of(failover_interval)
    together = threading.Barrier(4)

    def report(seed):
        chance = random.Random(seed)
        together.wait()
        for _ in range(60):
            entity.apply(chance.choice(FACTS))

    threads = [threading.Thread(target=report, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (entity._pings is not None) == entity.health.is_pinged  # noqa: SLF001 - a forgotten timer or ping shows much later
    assert (entity.next_ping is not None) == entity.health.is_pinged
    assert (entity._timer is not None) == (entity.health.phase is core.Phase.SUSPECT)  # noqa: SLF001 - a forgotten timer or ping shows much later
    assert entity.engaged.is_set() == entity.health.is_failed_over
    entity.close()


def test_events_come_in_the_order_of_the_decisions():
    """Else a gauge that follows them could say "failed over" for good."""
    is_telling, go_on = threading.Event(), threading.Event()
    told = []

    def slow(event):
        if event.name == "FailedOver":
            is_telling.set()
            assert go_on.wait(60)

    entity = entity_of(0.0, slow, lambda event: told.append(event.name))
    failing = threading.Thread(target=entity.apply, args=(core.SendFailed("x"),))
    failing.start()
    assert is_telling.wait(60)

    entity.apply(core.SendSucceeded(), by="send")
    go_on.set()
    failing.join(60)

    assert told == ["FailedOver", "Restored"]
    entity.close()


def test_observer_may_decide_something_itself():
    told = []

    def operator(event):
        if event.name == "FailedOver":
            entity.apply(core.PrimaryForced())

    entity = entity_of(0.0, operator, lambda event: told.append(event.name))
    entity.apply(core.SendFailed("x"))

    assert told == ["FailedOver", "RoutingForced", "Restored"]
    assert entity.health.forced == "primary"
    entity.close()


def test_forked_process_continues_the_outage_of_its_parent():
    parent, told = entity_of(0.0), []
    parent.apply(core.SendFailed("x"))
    parent.apply(core.PingRefused("gone"))
    parent.refusal = parent.last_error = MessagingEntityNotFoundError(message="gone")
    child = entity_of(0.0, told.append)

    child.resume(parent)

    assert child.health == parent.health
    assert child.refusal is parent.refusal  # a send in the child raises it, too
    child.apply(core.PingSucceeded())
    assert told[-1].name == "Restored"
    assert told[-1].seconds <= time.monotonic() - parent.health.since
    child.close()
    parent.close()


def test_nothing_starts_for_a_client_that_is_closed():
    """A send that was under way may fail later: nobody would stop what it sets going."""
    for failover_interval in (0.0, 3600.0):
        entity = entity_of(failover_interval)
        entity.close()

        entity.apply(core.SendFailed("x"))

        assert entity._pings is None  # noqa: SLF001 - a forgotten timer or ping shows much later
        assert entity._timer is None  # noqa: SLF001 - a forgotten timer or ping shows much later
        assert entity.next_ping is None


def test_message_that_was_not_sent_to_the_primary_is_not_uncertain():
    """The entity failed over while the send waited for its turn."""
    pair = pair_of()
    entity = pair.entity("orders")
    entity.last_error = OperationTimeoutError(message="another send had no answer")
    route = PrimaryRoute(SimpleNamespace(check=bool), entity, "orders", None, bool)
    deadline = time.monotonic() + 60

    redirect = route.after_failure(UnwantedError(), None, 0.0, deadline, was_open=False)

    assert redirect == Redirect()

    broken = ConnectionResetError("this send had no answer")
    retries = iter([UnwantedError()])

    def again():
        raise next(retries)

    redirect = route.after_failure(broken, again, 0.0, deadline, was_open=True)

    assert redirect.is_uncertain
    entity.close()


def test_redirected_call_that_did_not_get_its_turn_has_no_cause_and_no_other_copy():
    pair = pair_of()
    entity = pair.entity("orders")
    entity.failed(OperationTimeoutError(message="another send had no answer"))
    route = PrimaryRoute(SimpleNamespace(check=bool), entity, "orders", None, bool)

    redirect = route.after_failure(TurnTimeoutError("x"), None, 0.0, 1.0, was_open=True)

    assert redirect == Redirect()
    entity.close()


@pytest.fixture
def stall(monkeypatch):
    """Let `stall(seconds)` seem to stop the process for so long."""
    skew = [0.0]
    for module in (primary_route, link_module, connection):
        monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + skew[0])
    return lambda seconds: skew.append(skew.pop() + seconds)


def test_retry_that_the_deadline_cut_short_is_no_outage_if_the_error_is_late(stall):
    """The retry had less than open_timeout; the stall came after its deadline."""
    settings = SimpleNamespace(retry_total=1, retry_backoff_factor=0.0, retry_backoff_max=0.0)
    pair = pair_of(_config=settings, open_timeout=100.0)
    entity = pair.entity("orders")
    route = PrimaryRoute(SimpleNamespace(check=bool), entity, "orders", None, bool)
    started = time.monotonic()

    def retry():
        stall(200)
        raise OperationTimeoutError(message="no answer")

    with pytest.raises(ServiceBusServerBusyError):
        route.after_failure(
            ServiceBusServerBusyError(message="busy"), retry, started, started + 60, was_open=True
        )

    assert not entity.health.is_failed_over
    pair.close()


def test_a_send_that_never_got_its_turn_was_not_sent():
    sender = Silent()
    link = Link(lambda: sender, "orders")
    first = threading.Thread(
        target=link.send, args=("a",), kwargs={"deadline": time.monotonic() + 60}
    )
    first.start()
    assert sender.begun.wait(60)

    with pytest.raises(TurnTimeoutError) as caught:
        link.send("b", deadline=time.monotonic() + 0.01)

    sender.go_on.set()
    first.join(60)
    assert not caught.value.was_sent
    assert sender.sends == 1


class BreaksOff:
    """An SDK sender of a host that takes a message, breaks the connection, and refuses others."""

    def __init__(self):
        self.is_up = True

    def __enter__(self):
        if not self.is_up:
            raise ConnectionRefusedError

    def create_message_batch(self):
        return SimpleNamespace(max_size_in_bytes=10_000)

    def send_messages(self, what, *, timeout):
        self.is_up = False
        raise ConnectionResetError

    def close(self): ...


def test_a_message_that_was_sent_before_the_primary_was_gone_may_be_stored_twice():
    backlog, seen = Silent(), []
    backlog.go_on.set()
    pair = pair_of(seen.append, get_queue_sender=lambda path: backlog)
    lifecycle = SimpleNamespace(
        pair=pair, paired_side=SimpleNamespace(state="open"), check=lambda **_: None
    )
    primary = BreaksOff()
    sender = PairedSender(lifecycle, lambda: primary, "orders", "sender")

    sender.send_messages(ServiceBusMessage("a"))

    [stored] = [event for event in seen if isinstance(event, events.MessageBacklogged)]
    assert stored.is_uncertain
    pair.close()


class Silent:
    """An SDK sender: its first send waits for `go_on`, and its second has no answer."""

    def __init__(self):
        self.sends = 0
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.before_silence = bool

    def __enter__(self):
        return self

    def create_message_batch(self):
        return SimpleNamespace(max_size_in_bytes=10_000)

    def send_messages(self, what, *, timeout):
        self.sends += 1
        if self.sends == 1:
            self.begun.set()
            assert self.go_on.wait(60)
        elif self.sends == 2:
            self.before_silence()
            raise OperationTimeoutError(message="no answer")

    def close(self): ...


def test_a_message_that_was_on_the_wire_for_a_moment_may_be_stored_twice():
    sender, seen = Silent(), []
    pair = pair_of(seen.append, get_queue_sender=lambda path: sender)
    lifecycle = SimpleNamespace(check=lambda **_: None)
    route = BacklogRoute(lifecycle, pair.entity("orders"), "orders")

    def take(body):
        route.take(prepare(ServiceBusMessage(body)), 60.0, Redirect())

    first, second = (threading.Thread(target=take, args=(body,)) for body in "ab")
    first.start()
    assert sender.begun.wait(60)
    second.start()
    while not route.current.waiting:
        threading.Event().wait(0.001)
    sender.go_on.set()
    first.join(60)
    second.join(60)

    stored = [event for event in seen if isinstance(event, events.MessageBacklogged)]
    assert [event.is_uncertain for event in stored] == [False, True]
    pair.close()


def test_send_that_was_hardly_on_the_wire_is_no_outage_if_the_error_is_late(stall):
    sender, raised = Silent(), []
    link = Link(lambda: sender, "orders", open_timeout=100.0)

    def send():
        try:
            link.send("a", deadline=time.monotonic() + 60)
        except OperationTimeoutError as error:
            raised.append(error)

    first, second = threading.Thread(target=send), threading.Thread(target=send)
    first.start()
    assert sender.begun.wait(60)
    second.start()
    while not link.waiting:
        threading.Event().wait(0.001)
    sender.before_silence = partial(stall, 200)
    sender.go_on.set()
    first.join(60)
    second.join(60)

    [error] = raised
    assert isinstance(error, TurnTimeoutError)
    assert error.was_sent
    link.close()


def test_no_queue_is_probed_for_a_client_that_is_closed():
    pair = pair_of()
    pair.close()

    pair.remove_queue("a/x-servicebus-transfer/0", OSError("gone"))

    assert pair.rotation.available == ()
    assert pair._probes is None  # noqa: SLF001 - a forgotten timer or ping shows much later


class Opening:
    """An SDK sender that opens when it is told to."""

    def __init__(self):
        self.is_open = False
        self.begun, self.go_on, self.closed = (threading.Event() for _ in range(3))

    def __enter__(self):
        self.begun.set()
        assert self.go_on.wait(60)
        self.is_open = True

    def close(self):
        if self.is_open:
            self.is_open = False
            self.closed.set()


def test_link_that_is_closed_while_it_opens_does_not_stay_open():
    sender = Opening()
    link = Link(lambda: sender, "primary orders")
    raised = []

    def open_it():
        try:
            link.open(deadline=time.monotonic() + 60)
        except ValueError as error:
            raised.append(error)

    opening = threading.Thread(target=open_it)
    opening.start()
    assert sender.begun.wait(60)

    link.close()
    sender.go_on.set()
    opening.join(60)

    assert sender.closed.wait(60)
    assert "shutdown" in str(raised[0])
    assert not link.is_open


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_sends_have_a_deadline_in_a_forked_process_too():
    """The watchdog's thread stays behind in the parent; the child's sends must not hang."""
    here, there = socket.socketpair()
    with here, there:
        hung = SimpleNamespace(
            _handler=SimpleNamespace(
                _connection=SimpleNamespace(_transport=SimpleNamespace(sock=here))
            ),
            close=lambda: None,
        )
        watch = Watch()  # the parent's watchdog runs now
        child = os.fork()
        if child == 0:
            try:
                mine = Watch()
                mine.deadline, mine.sender = time.monotonic() - 1, hung
                there.settimeout(10)
                os._exit(0 if there.recv(1) == b"" else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watch.sender is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_was_dropped_before_a_fork_is_the_parents_to_close():
    class Owner:
        pass

    closed = threading.Event()
    owner = Owner()
    _compat.on_drop(owner, closed.set)
    del owner
    child = os.fork()
    if child == 0:
        os._exit(0 if _compat._dropped.empty() else 1)  # noqa: SLF001 - a forgotten timer or ping shows much later
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    _compat.close_dropped()
    assert closed.wait(60)
