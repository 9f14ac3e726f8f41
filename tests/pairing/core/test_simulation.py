"""A day of outages in virtual time: 1,000 clients x 20 entities, deterministic, in seconds.

Every client runs the real decision core for every entity, and the real rotation; only the world
around it (time, network, brokers) is made up. The account that judges it is kept apart from it:
what each entity was at each moment, and what became of each message.
"""

import bisect
import heapq
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from pairbus.pairing.core.health import (
    ArmTimer,
    CancelTimer,
    Health,
    Phase,
    PingFailed,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    StartPings,
    StopPings,
    TimerFired,
    step,
)
from pairbus.pairing.core.ping import PingSchedule
from pairbus.pairing.core.rotation import Rotation

CLIENTS, ENTITIES = 1000, 20
DAY = 86_400.0
DEADLINE = 30.0  # of a send and of a ping to a silent primary
LATENCY = 0.01  # of one that answers or refuses
TICK = 1e-6


@dataclass(frozen=True)
class Times:
    failover_interval: float = 60.0
    ping_primary_interval: float = 300.0
    drains_first: bool = False


TIMES = Times()


class Primary:
    """When one entity is out: refusing, or silent (it may take a message and never say so)."""

    def __init__(self, chance):
        self.starts, self.ends, self.silent = [], [], []
        now = chance.uniform(0, DAY / 2)
        while now < DAY:
            self.starts.append(now)
            now += chance.expovariate(1 / 900.0)
            self.ends.append(now)
            self.silent.append(chance.random() < 0.4)
            now += chance.expovariate(1 / (DAY / 2))

    def outage(self, moment):
        """The outage at `moment`, as (end, is_silent); None if the entity is well."""
        index = bisect.bisect_right(self.starts, moment) - 1
        if index >= 0 and moment < self.ends[index]:
            return self.ends[index], self.silent[index]
        return None

    def recovered_at(self, moment):
        """When the last outage before `moment` ended; it is well since then."""
        index = bisect.bisect_right(self.ends, moment) - 1
        return self.ends[index] if index >= 0 else 0.0


class Sender:
    """One client's view of one entity: the shell, in virtual time."""

    __slots__ = ("health", "last_ping", "pings", "queue", "schedule", "timer")

    def __init__(self):
        self.health = Health()
        self.timer = 0  # which timer is armed; a stale one is ignored
        self.pings = 0  # which run of pings is on
        self.schedule = None
        self.queue = None
        self.last_ping = None  # when the last ping ended, or the failover began


class World:
    def __init__(self, seed, *, clients=CLIENTS, core=step):
        self.chance = random.Random(seed)
        self.core = core
        self.primaries = [Primary(self.chance) for _ in range(ENTITIES)]
        self.senders = [[Sender() for _ in range(ENTITIES)] for _ in range(clients)]
        self.rotations = [Rotation(tuple(f"q/{n}" for n in range(3))) for _ in range(clients)]
        self.events = []
        self.count = 0
        self.sent = Counter()
        # The account: what the applications were told, and what is where.
        self.accepted = set()
        self.at_home = Counter()  # by message: how many copies the primary has
        self.waiting = {f"q/{n}": set() for n in range(3)}
        self.pinged_while = Counter()

    def at(self, moment, what, *args):
        self.count += 1
        heapq.heappush(self.events, (moment, self.count, what, args))

    def tell(self, sender, client, entity, fact, now):
        before = sender.health
        sender.health, commands = self.core(before, fact, now=now, options=TIMES)
        if sender.health.is_failed_over and not before.is_failed_over:
            sender.last_ping = now
        for command in commands:
            kind = command.__class__
            if kind is ArmTimer:
                sender.timer += 1
                self.at(command.at, self.timer_fires, sender, client, entity, sender.timer)
            elif kind is CancelTimer:
                sender.timer += 1
            elif kind is StartPings:
                sender.pings += 1
                sender.schedule = PingSchedule(
                    command.at, TIMES.failover_interval, TIMES.ping_primary_interval
                )
                self.at(command.at, self.ping, sender, client, entity, sender.pings)
            elif kind is StopPings:
                sender.pings += 1
                sender.schedule = None
        assert (sender.schedule is not None) == sender.health.is_pinged

    def timer_fires(self, now, sender, client, entity, number):
        if number == sender.timer:
            self.tell(sender, client, entity, TimerFired(), now)
            assert sender.health.is_failed_over, "a timer that is armed fires in time"

    def ping(self, now, sender, client, entity, number):
        if number != sender.pings:
            return
        self.pinged_while[sender.health.phase] += 1
        gap = now - sender.last_ping
        assert gap <= TIMES.ping_primary_interval + TICK, f"no ping for {gap} s"
        outage = self.primaries[entity].outage(now)
        took = LATENCY if outage is None or not outage[1] else DEADLINE
        fact = PingSucceeded() if outage is None else PingFailed("out")
        self.at(now + took, self.ping_ends, sender, client, entity, number, fact)

    def ping_ends(self, now, sender, client, entity, number, fact):
        sender.last_ping = now
        if number != sender.pings:
            return
        sender.schedule = sender.schedule.after(now)
        self.at(sender.schedule.due, self.ping, sender, client, entity, number)
        self.tell(sender, client, entity, fact, now)

    def send(self, now, sender, client, entity, message):
        primary = self.primaries[entity]
        if sender.health.is_failed_over:
            well_since = primary.recovered_at(now)
            if primary.outage(now) is None:
                late = now - max(well_since, sender.health.since)
                bound = TIMES.ping_primary_interval + DEADLINE + LATENCY + TICK
                assert late <= bound, f"still in the backlog {late} s after the recovery"
            self.to_backlog(now, sender, client, message)
            return
        if sender.health.phase is Phase.SUSPECT:
            suspect = now - sender.health.failing_since
            assert suspect <= TIMES.failover_interval + TICK, "the timer did not fire by itself"
        outage = primary.outage(now)
        if outage is None:
            self.at_home[message] += 1
            self.accepted.add(message)
            self.sent["primary"] += 1
            if sender.health.phase is not Phase.HEALTHY:
                self.tell(sender, client, entity, SendSucceeded(), now)
            return
        took = DEADLINE if outage[1] else LATENCY
        if outage[1] and self.chance.random() < 0.5:
            self.at_home[message] += 1  # a silent primary may have taken it
        self.at(now + took, self.send_ends, sender, client, entity, message)

    def send_ends(self, now, sender, client, entity, message):
        """The attempt on the primary failed, at `now`."""
        self.tell(sender, client, entity, SendFailed("out"), now)
        if sender.health.is_failed_over:
            # Engaged before, or by this very send: redirected, not failed.
            self.to_backlog(now, sender, client, message)
        else:
            assert sender.health.phase is Phase.SUSPECT
            assert now - sender.health.failing_since < TIMES.failover_interval
            self.sent["raised"] += 1

    def to_backlog(self, now, sender, client, message):
        rotation = self.rotations[client]
        while True:
            sender.queue = rotation.pick(self.chance.random(), current=sender.queue)
            if sender.queue is None:
                self.sent["unavailable"] += 1
                break
            if self.chance.random() < 0.9995:
                self.waiting[sender.queue].add(message)
                self.accepted.add(message)
                self.sent["backlog"] += 1
                break
            rotation = rotation.remove(sender.queue, "full", now=now, cooldown=60.0)
        for path in rotation.due(now):
            rotation = rotation.restore(path)
        self.rotations[client] = rotation

    def run(self, sends_a_day):
        number = 0
        for client in range(len(self.senders)):
            for entity in range(ENTITIES):
                sender = self.senders[client][entity]
                for _ in range(sends_a_day):
                    number += 1
                    moment = self.chance.uniform(0, DAY)
                    self.at(moment, self.send, sender, client, entity, number)
        horizon = DAY + 2 * TIMES.ping_primary_interval + DEADLINE
        while self.events:
            now, _, what, args = heapq.heappop(self.events)
            if now > horizon and what == self.ping:
                continue  # an outage that goes on past the day
            what(now, *args)
        for queue in self.waiting.values():  # the syphon brings everything home
            self.at_home.update(queue)
        return number

    def check(self, sent):
        """The three promises, against the account."""
        outcome = self.sent
        # Every send ended in exactly one way.
        assert sum(outcome.values()) == sent
        lost = self.accepted - self.at_home.keys()
        assert not lost, f"{len(lost)} messages were accepted and are nowhere"
        # A copy more is what a silent primary took and never said, and at most that.
        assert max(self.at_home.values()) <= 2
        # Pings happened while an entity was failed over, and never else.
        assert set(self.pinged_while) == {Phase.FAILED_OVER}


@pytest.mark.slow
def test_a_day_of_outages_loses_nothing_pings_only_in_failover_and_comes_home_in_time():
    world = World(seed=20261115)

    sent = world.run(sends_a_day=10)

    world.check(sent)
    # The day had everything in it.
    assert all(world.sent[how] > 0 for how in ("primary", "backlog", "raised"))
    assert 2 in world.at_home.values()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_day():
    def day():
        world = World(seed=7, clients=20)
        world.run(sends_a_day=8)
        return world.sent

    assert day() == day()


def without(kind):
    """The core, but for one kind of command that it never gives."""

    def broken(health, fact, *, now, options):
        health, commands = step(health, fact, now=now, options=options)
        return health, [command for command in commands if not isinstance(command, kind)]

    return broken


def deaf_to(kind):
    """The core, but for one kind of fact that it does not hear."""

    def broken(health, fact, *, now, options):
        return (
            (health, []) if isinstance(fact, kind) else step(health, fact, now=now, options=options)
        )

    return broken


@pytest.mark.slow
@pytest.mark.parametrize(
    "core",
    [
        without(StartPings),
        without(StopPings),
        without(ArmTimer),
        deaf_to(PingSucceeded),
        deaf_to(TimerFired),
        deaf_to(SendFailed),
    ],
    ids=["no pings", "endless pings", "no timer", "deaf to pings", "deaf to timers", "deaf"],
)
def test_the_account_notices_a_core_that_is_broken(core):
    world = World(seed=7, clients=20, core=core)

    with pytest.raises(AssertionError):
        world.check(world.run(sends_a_day=100))
