"""The adaptive rate, against a simulated Standard namespace: no clock, no sockets."""

import itertools
import random

import pytest

from pairbus.syphon.rates import AdaptiveRate, Pace, Pacer, ceiling_of

CREDITS = 1000
STEP = 0.05  # seconds of one turn of the simulation


class Namespace:
    """Grants credits at the start of each second; an operation that finds any is served whole."""

    def __init__(self, credits=CREDITS):
        self.credits, self.left, self.second = credits, credits, 0

    def take(self, now, messages):
        if int(now) != self.second:
            owed = min(0, self.left)
            self.second, self.left = int(now), self.credits + owed
        if self.left <= 0:
            return False
        self.left -= messages
        return True


class Drain:
    """Sends in small batches at the adaptive rate, as the tasks of a micro-batch do."""

    def __init__(self, namespace, ceiling):
        self.namespace, self.rate = namespace, AdaptiveRate.begin(ceiling)
        self.pacer = Pacer(Pace(self.rate.rate), 0.0)
        self.sent = self.refused = 0
        self.blocked_until = 0.0
        self.since, self.moved, self.was_busy = 0.0, 0, False

    def turn(self, now):
        if now - self.since >= 1.0:  # a micro-batch ends, and reports
            if self.was_busy:
                self.rate = self.rate.busy(now)
            elif self.moved >= 0.5 * self.rate.rate:
                self.rate = self.rate.used(now)
            self.pacer = Pacer(Pace(self.rate.rate), now)
            self.since, self.moved, self.was_busy = now, 0, False
        while now >= self.blocked_until and self.pacer.wait(now) <= 0:
            batch = Pace(self.rate.rate).chunk
            if not self.namespace.take(now, batch):
                self.refused += 1
                self.was_busy, self.blocked_until = True, now + 0.5
                return
            self.pacer.read(now, batch)
            self.sent += batch
            self.moved += batch


@pytest.mark.parametrize("live", [0, 300, 600, 900])
@pytest.mark.parametrize("seed", range(3))
def test_the_drain_takes_what_is_left_and_live_traffic_is_hardly_refused(live, seed):
    chance = random.Random(seed)
    namespace = Namespace()
    ceiling = ceiling_of(CREDITS, 1 / 3)
    drain = Drain(namespace, ceiling)
    live_sent = live_refused = begun = 0
    for turn in range(int(90 / STEP)):
        now = turn * STEP
        sends = int(live * STEP + chance.random())
        both = [(drain.turn, now)] + [(None, now)] * sends
        chance.shuffle(both)
        for act, at in both:
            if act is not None:
                act(at)
            elif now >= 10:
                live_sent += 1
                live_refused += not namespace.take(at, 1)
            else:
                namespace.take(at, 1)
        if now < 10:
            begun = drain.sent
    allowed = min(ceiling, CREDITS - live)
    assert (drain.sent - begun) / 80 >= 0.85 * allowed
    assert drain.sent / 90 <= ceiling * 1.02
    # Below the ceiling nothing is refused. Above it the drain finds the limit by trying, and live
    # traffic pays for each try until the drain is refused itself.
    if live:
        assert live_refused / live_sent <= (0.005 if live <= 300 else 0.03)


def test_slow_start_doubles_with_every_micro_batch_up_to_the_ceiling():
    rate = AdaptiveRate.begin(667.0)
    seen = [rate.rate]
    for second in range(1, 6):
        rate = rate.used(float(second))
        seen.append(rate.rate)
    assert seen == [100, 200, 400, 667, 667, 667]


def test_a_busy_namespace_costs_fifteen_percent_once_a_second_and_growth_is_additive():
    rate = AdaptiveRate(1000.0, 800.0)
    rate = rate.busy(10.0)
    assert rate.rate == pytest.approx(680)
    assert rate.busy(10.5).rate == pytest.approx(680)  # several tasks report the same shortage
    assert rate.is_throttled(12.0)
    rate = rate.used(11.0)
    assert rate.rate == pytest.approx(688)
    assert not rate.is_throttled(30.0)
    for second in itertools.count(40):
        rate = rate.busy(float(second))
        if second > 100:
            break
    assert rate.rate >= 5  # it never stops altogether


def test_without_a_ceiling_the_rate_becomes_unlimited():
    rate = AdaptiveRate.begin(None)
    for second in range(1, 4):
        assert rate.limit is not None
        rate = rate.used(float(second))
    assert rate.limit is None


def test_the_ceiling_leaves_a_share_for_live_traffic_and_premium_has_none():
    assert ceiling_of(1000, 1 / 3) == pytest.approx(666.7, abs=0.1)
    assert ceiling_of(None, 1 / 3) is None


def test_a_pacer_spreads_reads_over_time():
    pacer = Pacer(Pace(100.0, burst=20.0), 0.0)
    pacer.read(0.0, 20)
    assert pacer.wait(0.0) == 0
    pacer.read(0.0, 10)
    assert pacer.wait(0.0) == pytest.approx(0.1)
    assert pacer.wait(0.1) == pytest.approx(0.0)
