"""Threads at once: pings, timers and events in step with the state; nothing left open."""

import random
import threading
from types import SimpleNamespace

import pytest

from pairbus._sync.entity import Entity
from pairbus._sync.pair import Timing
from pairbus.core import health as core
from pairbus.hub import Hub

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
    return Entity("orders", SimpleNamespace(timing=timing, hub=Hub("a>b", observers)))


@pytest.mark.parametrize("failover_interval", [0.0, 3600.0])
def test_pings_and_timer_are_what_the_state_says_after_any_race(failover_interval, monkeypatch):
    monkeypatch.setattr(Entity, "_ping", lambda self, stopped: None)
    entity = entity_of(failover_interval)
    together = threading.Barrier(4)

    def report(seed):
        chance = random.Random(seed)
        together.wait()
        for _ in range(60):
            entity.observe(chance.choice(FACTS))

    threads = [threading.Thread(target=report, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (entity._pings is not None) == entity.health.is_pinged
    assert (entity.next_ping is not None) == entity.health.is_pinged
    assert (entity._timer is not None) == (entity.health.phase is core.Phase.SUSPECT)
    assert entity.engaged.is_set() == entity.health.is_failed_over
    entity.close()


def test_events_come_in_the_order_of_the_decisions():
    """Else a gauge that follows them could say "failed over" for good."""
    is_telling, go_on = threading.Event(), threading.Event()
    told = []

    def slow(event):
        if event.name == "FailedOver":
            is_telling.set()
            assert go_on.wait(10)

    entity = entity_of(0.0, slow, lambda event: told.append(event.name))
    failing = threading.Thread(target=entity.observe, args=(core.SendFailed("x"),))
    failing.start()
    assert is_telling.wait(10)

    entity.observe(core.SendSucceeded(), by="send")
    go_on.set()
    failing.join(10)

    assert told == ["FailedOver", "Restored"]
    entity.close()


def test_observer_may_decide_something_itself():
    told = []

    def operator(event):
        if event.name == "FailedOver":
            entity.observe(core.PrimaryForced())

    entity = entity_of(0.0, operator, lambda event: told.append(event.name))
    entity.observe(core.SendFailed("x"))

    assert told == ["FailedOver", "RoutingForced", "Restored"]
    assert entity.health.forced == "primary"
    entity.close()
