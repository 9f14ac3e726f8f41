"""Threads that report facts at once never leave pings or timers out of step with the state."""

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


@pytest.mark.parametrize("failover_interval", [0.0, 3600.0])
def test_pings_and_timer_are_what_the_state_says_after_any_race(failover_interval, monkeypatch):
    monkeypatch.setattr(Entity, "_ping", lambda self, stopped: None)
    pair = SimpleNamespace(
        timing=Timing(
            failover_interval=failover_interval,
            ping_primary_interval=1800.0,
            send_timeout=1.0,
            backlog_cooldown=1.0,
        ),
        hub=Hub("a>b", ()),
    )
    entity = Entity("orders", pair)
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
