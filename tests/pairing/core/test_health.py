"""The health of an entity: every answer, what must never happen, and what must happen."""

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pairbus.pairing.core.health import (
    ArmTimer,
    BacklogDrained,
    BacklogForced,
    CancelTimer,
    DrainEnded,
    Health,
    Phase,
    PingFailed,
    PingRefused,
    PingSucceeded,
    PrimaryForced,
    Released,
    SendFailed,
    SendSucceeded,
    StartDrain,
    StartPings,
    StopDrain,
    StopPings,
    TimerFired,
    resume,
    step,
)


@dataclass(frozen=True)
class Times:
    failover_interval: float = 60.0
    ping_primary_interval: float = 30.0
    drains_first: bool = False


TIMES = Times()
AT_ONCE = Times(failover_interval=0)
DRAIN_FIRST = Times(drains_first=True)
FACTS = [
    SendSucceeded(),
    SendFailed("refused"),
    TimerFired(),
    PingSucceeded(),
    PingFailed("silent"),
    PingRefused("gone"),
    BacklogForced(),
    PrimaryForced(),
    Released(),
    BacklogDrained(),
    DrainEnded(),
]
HEALTHS = [
    Health(),
    Health(Phase.SUSPECT, 10, 10, "refused"),
    Health(Phase.FAILED_OVER, 70, 10, "refused"),
    Health(Phase.FAILED_OVER, 70, 10, "gone", "gone"),
    Health(Phase.FAILED_OVER, 70, 70, "forced by an operator", "", "backlog"),
    Health(forced="primary"),
    Health(Phase.DRAINING, 90, 10),
]


@pytest.mark.parametrize(("health", "fact"), list(product(HEALTHS, FACTS)), ids=repr)
def test_every_phase_has_an_answer_to_every_fact(health, fact):
    after, commands = step(health, fact, now=100.0, options=TIMES)

    assert isinstance(after, Health)
    backlogged = after.phase in (Phase.FAILED_OVER, Phase.DRAINING)
    assert after.is_pinged == (backlogged and not after.forced)
    assert len({type(command) for command in commands}) == len(commands)


def test_first_outage_starts_the_timer():
    health, commands = step(Health(), SendFailed("refused"), now=10.0, options=TIMES)

    assert health == Health(Phase.SUSPECT, 10.0, 10.0, "refused")
    assert commands == [ArmTimer(70.0)]


def test_with_an_interval_of_zero_the_first_outage_fails_over():
    health, commands = step(Health(), SendFailed("refused"), now=10.0, options=AT_ONCE)

    assert health.is_failed_over
    assert StartPings(11.0) in commands


def test_timer_fails_over_by_itself_after_one_failure_and_silence():
    suspect, _ = step(Health(), SendFailed("refused"), now=10.0, options=TIMES)

    health, commands = step(suspect, TimerFired(), now=70.0, options=TIMES)

    assert (health.phase, health.since, health.failing_since) == (Phase.FAILED_OVER, 70.0, 10.0)
    assert commands == [CancelTimer(), StartPings(100.0)]


def test_a_stale_timer_is_no_news():
    suspect = Health(Phase.SUSPECT, 50.0, 50.0)

    assert step(suspect, TimerFired(), now=70.0, options=TIMES) == (suspect, [])


def test_more_failures_do_not_restart_the_timer():
    suspect = Health(Phase.SUSPECT, 10.0, 10.0)

    health, commands = step(suspect, SendFailed("again"), now=69.9, options=TIMES)

    assert (health.failing_since, health.reason, commands) == (10.0, "again", [])


def test_a_failure_that_overtakes_its_late_timer_fails_over():
    suspect = Health(Phase.SUSPECT, 10.0, 10.0)

    assert step(suspect, SendFailed("again"), now=70.0, options=TIMES)[0].is_failed_over


def test_success_before_the_interval_has_passed_clears_the_suspicion():
    health, commands = step(Health(Phase.SUSPECT, 10, 10), SendSucceeded(), now=60, options=TIMES)

    assert (health.phase, commands) == (Phase.HEALTHY, [CancelTimer()])


@pytest.mark.parametrize("fact", [PingSucceeded(), SendSucceeded()], ids=repr)
def test_first_ping_or_late_send_that_succeeds_ends_the_failover(fact):
    health, commands = step(Health(Phase.FAILED_OVER, 70, 10), fact, now=200, options=TIMES)

    assert (health.phase, commands) == (Phase.HEALTHY, [StopPings()])


def test_ping_that_finds_the_entity_gone_is_remembered_until_a_ping_succeeds():
    refused, commands = step(
        Health(Phase.FAILED_OVER, 70, 10), PingRefused("gone"), now=100, options=TIMES
    )
    assert (refused.refused, refused.phase, commands) == ("gone", Phase.FAILED_OVER, [])

    still, _ = step(refused, PingFailed("silent"), now=130, options=TIMES)
    assert still.refused == "gone"

    well, _ = step(still, PingSucceeded(), now=160, options=TIMES)
    assert well == Health(since=160)


@pytest.mark.parametrize("fact", [*FACTS[:6], *FACTS[9:]], ids=repr)
def test_operators_route_stands_whatever_happens(fact):
    for forced in (HEALTHS[4], HEALTHS[5]):
        assert step(forced, fact, now=1e6, options=TIMES) == (forced, [])


def test_release_of_a_forced_failover_pings_at_once():
    forced, commands = step(Health(), BacklogForced(), now=10, options=TIMES)
    assert forced.is_failed_over
    assert not forced.is_pinged
    assert commands == [CancelTimer(), StopPings()]

    released, commands = step(forced, Released(), now=50, options=TIMES)

    assert released.is_pinged
    assert commands == [StartPings(50)]


def test_release_of_a_forced_primary_is_healthy_again():
    forced, _ = step(Health(Phase.FAILED_OVER, 70, 10), PrimaryForced(), now=100, options=TIMES)
    assert (forced.phase, forced.forced) == (Phase.HEALTHY, "primary")

    assert step(forced, Released(), now=110, options=TIMES) == (Health(since=110), [])


def test_release_without_force_changes_nothing():
    for health in HEALTHS[:4]:
        assert step(health, Released(), now=100, options=TIMES) == (health, [])


@pytest.mark.parametrize("fact", [PingSucceeded(), SendSucceeded()], ids=repr)
def test_with_drain_first_the_primary_is_back_but_sends_follow_the_backlog(fact):
    failed = Health(Phase.FAILED_OVER, 70, 10)

    draining, commands = step(failed, fact, now=200, options=DRAIN_FIRST)

    assert (draining.phase, draining.is_failed_over) == (Phase.DRAINING, True)
    assert commands == [StartDrain()]
    for end in (BacklogDrained(), DrainEnded()):
        assert step(draining, end, now=210, options=DRAIN_FIRST) == (
            Health(since=210),
            [StopPings(), StopDrain()],
        )


def test_a_new_outage_while_draining_voids_the_fences():
    draining = Health(Phase.DRAINING, 90, 10)

    again, commands = step(draining, PingFailed("silent"), now=100, options=DRAIN_FIRST)
    assert (again.phase, again.failing_since, commands) == (Phase.FAILED_OVER, 100, [StopDrain()])
    # An answer to a fence of before is no news now.
    assert step(again, BacklogDrained(), now=101, options=DRAIN_FIRST) == (again, [])

    gone, commands = step(draining, PingRefused("gone"), now=100, options=DRAIN_FIRST)
    assert (gone.refused, commands) == ("gone", [StopDrain()])


def test_a_busy_primary_and_a_late_failure_do_not_end_the_drain():
    draining = Health(Phase.DRAINING, 90, 10)

    for fact in (PingFailed("busy", is_outage=False), SendFailed("late"), PingSucceeded()):
        assert step(draining, fact, now=100, options=DRAIN_FIRST) == (draining, [])


@given(
    st.lists(st.tuples(st.sampled_from(FACTS), st.floats(0, 100)), max_size=40),
    st.sampled_from([TIMES, DRAIN_FIRST]),
)
def test_pings_timer_and_drain_follow_the_phase(history, times):
    """Safety: whatever happened, the commands add up to what the phase says."""
    health, now = Health(), 0.0
    pinging, timer, draining = False, None, False
    for fact, elapsed in history:
        now += elapsed
        health, commands = step(health, fact, now=now, options=times)
        for command in commands:
            match command:
                case ArmTimer(at):
                    timer = at
                case CancelTimer():
                    timer = None
                case StartPings():
                    pinging = True
                case StopPings():
                    pinging = False
                case StartDrain():
                    draining = True
                case StopDrain():
                    draining = False
        assert pinging == health.is_pinged
        assert draining == (health.phase is Phase.DRAINING)
        assert (timer is not None) == (health.phase is Phase.SUSPECT)
        if timer is not None:
            assert timer == health.failing_since + TIMES.failover_interval
        expected = [ArmTimer(timer)] if timer is not None else []
        expected += [StartPings(now + TIMES.ping_primary_interval)] if pinging else []
        expected += [StartDrain()] if draining else []
        assert resume(health, now=now, options=TIMES) == expected


class Outage(RuleBasedStateMachine):
    """Liveness, against an account of its own: when failover must be on, and when it must not."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.health = Health()
        self.timer = None
        # The independent account: the first failure since the last success, and recovery.
        self.first_failure = None
        self.must_be_over = False

    def tell(self, fact):
        self.health, commands = step(self.health, fact, now=self.now, options=TIMES)
        for command in commands:
            if isinstance(command, ArmTimer):
                self.timer = command.at
            elif isinstance(command, CancelTimer):
                self.timer = None

    @rule(seconds=st.floats(0.1, 90))
    def time_passes(self, seconds):
        end = self.now + seconds
        if self.timer is not None and self.timer <= end:
            self.now = self.timer
            self.tell(TimerFired())
        self.now = end
        if self.first_failure is not None and end >= self.first_failure + 60.0:
            self.must_be_over = True

    @precondition(lambda self: not self.health.is_failed_over)
    @rule()
    def send_fails(self):
        self.tell(SendFailed("refused"))
        if self.first_failure is None:
            self.first_failure = self.now

    @rule()
    def late_send_succeeds(self):
        self.tell(SendSucceeded())
        self.first_failure, self.must_be_over = None, False

    @precondition(lambda self: self.health.is_failed_over)
    @rule(fact=st.sampled_from([PingFailed("silent"), PingRefused("gone")]))
    def ping_fails(self, fact):
        self.tell(fact)

    @precondition(lambda self: self.health.is_failed_over)
    @rule()
    def ping_succeeds(self):
        self.tell(PingSucceeded())
        self.first_failure, self.must_be_over = None, False

    @invariant()
    def failed_over_exactly_when_the_account_says_so(self):
        assert self.health.is_failed_over == self.must_be_over


TestOutage = Outage.TestCase
