"""The adaptive rate, against a model of a Standard namespace: no clock, no sockets."""

import itertools

import pytest

from pairbus.syphon.rates import AdaptiveRate, Pace, Pacer, SendingPace, ceiling_of
from tests.syphon.throttled_model import CEILING, CREDITS, Model


@pytest.mark.parametrize(
    ("live", "seed", "tasks"), [(0, 0, 1), (100, 1, 1), (300, 2, 1), (300, 3, 4), (400, 4, 1)]
)
def test_the_drain_takes_what_is_left_and_live_traffic_is_hardly_refused(live, seed, tasks):
    model = Model(live, seed, tasks=tasks)
    model.run(10)
    drained, sent, refused = model.drained, model.live_sent, model.live_refused
    model.run(50)
    left = min(CEILING, (CREDITS - 2 * live) / 2)  # each message is sent and received
    assert (model.drained - drained) / 50 >= 0.85 * left
    assert model.drained / 60 <= CEILING
    assert model.live_refused - refused <= 0.005 * (model.live_sent - sent)


def test_a_machine_that_stops_now_and_then_costs_the_live_traffic_little():
    model = Model(300, 0, hiccups=1.0)
    model.run(10)
    drained, sent, refused = model.drained, model.live_sent, model.live_refused
    model.run(60)
    assert (model.drained - drained) / 60 >= 0.7 * 200
    assert model.live_refused - refused <= 0.01 * (model.live_sent - sent)


def test_the_drain_finds_the_credits_that_live_traffic_no_longer_uses():
    model = Model(400, 0)
    model.run(60)
    model.live = 50  # from its next send on
    model.run(60)
    drained = model.drained
    model.run(30)
    assert (model.drained - drained) / 30 >= 0.7 * 450


def test_slow_start_grows_every_second_up_to_the_ceiling():
    rate = AdaptiveRate.begin(667.0)
    seen = [round(rate.used(seconds).rate) for seconds in (0, 1, 2, 4, 8)]
    assert seen == [100, 130, 169, 286, 667]


def test_the_first_busy_answer_takes_a_fifth_and_each_later_one_an_eighth():
    rate = AdaptiveRate(1000.0, 800.0).busy(10.0)
    assert rate.rate == pytest.approx(640)
    assert rate.busy(10.5).rate == pytest.approx(640)  # several answers tell of one shortage
    assert rate.busy(12.0).rate == pytest.approx(640 * 0.88)
    assert rate.is_throttled(60.0)
    assert not rate.is_throttled(80.0)
    for second in range(100, 200):
        rate = rate.busy(float(second))
    assert rate.rate >= 1  # it never stops altogether


def test_the_rate_grows_fast_far_from_the_peak_slowly_near_it_and_fast_beyond_it():
    rate = AdaptiveRate(None, 200.0, peak=200.0).busy(0.0)
    rates = []
    for _ in range(60):
        rate = rate.used(1.0)
        rates.append(rate.rate)
    gains = [b - a for a, b in itertools.pairwise(rates)]
    assert all(gain > 0 for gain in gains)
    assert 195 <= rates[15] <= rates[35] <= 205  # it stays near the peak for most of the time
    assert gains[0] > 1
    assert gains[-1] > 5
    assert rate.used(0.0).rate == pytest.approx(rate.rate)


def test_tasks_adapt_their_shares_and_the_planner_adds_them_up():
    rate = AdaptiveRate(600.0, 400.0, peak=420.0, busy_at=1.0)
    share = rate.share(4)
    assert (share.rate, share.ceiling) == (100.0, 150.0)
    assert rate.joined([share] * 4, 4) == rate
    slower = share.busy(5.0)
    assert rate.joined([share, share, share, slower], 4).rate == pytest.approx(388)
    assert rate.joined([slower], 4).rate == pytest.approx(352)  # the others did not report
    assert AdaptiveRate.from_json(slower.to_json()) == slower
    first = AdaptiveRate.begin(600.0)
    assert AdaptiveRate.from_json(first.to_json()) == first


def test_a_busy_answer_counts_for_the_rate_that_was_really_used():
    rate = AdaptiveRate(None, 50_000.0).busy(1.0, measured=900.0)
    assert rate.rate == pytest.approx(720)
    assert rate.busy(3.0, measured=500.0).peak == 500


def test_the_rate_at_which_slow_start_ended_is_not_expected_in_the_long_run():
    rate = AdaptiveRate(1000.0, 290.0).busy(10.0)
    assert rate.rate == pytest.approx(232)
    assert rate.lasting < 232
    for _ in range(10):
        rate = rate.used(1.0)
    assert rate.rate < 245  # it stays, instead of returning to 290


def test_without_a_ceiling_the_rate_becomes_unlimited():
    rate = AdaptiveRate.begin(None)
    for _ in range(3):
        assert rate.limit is not None
        rate = rate.used(1.0)
    assert rate.limit is None


def test_the_ceiling_leaves_a_share_for_live_traffic_and_premium_has_none():
    assert ceiling_of(1000, 1 / 3) == pytest.approx(666.7, abs=0.1)
    assert ceiling_of(None, 1 / 3) is None


def test_a_pacer_spreads_reads_over_time_and_makes_up_for_a_moment_only():
    pacer = Pacer(Pace(100.0), 0.0)
    pacer.read(0.0, 10)
    assert pacer.wait(0.0) == pytest.approx(0.1)
    assert pacer.wait(0.1) == pytest.approx(0.0)
    pacer.read(10.0, 35)
    assert pacer.wait(10.0) == pytest.approx(0.1)


def test_sends_are_small_and_even_and_nothing_is_made_up_for_after_a_busy_answer():
    pace = SendingPace(AdaptiveRate(600.0, 200.0), 0.0)
    assert pace.wait(0.0) == pytest.approx(0.01)
    assert pace.allowance(0.01) == 2
    pace.sent(0.01, 2)
    assert pace.wait(0.01) == pytest.approx(0.01, rel=0.01)
    assert pace.allowance(5.0) <= 50  # a quarter of a second's
    pace.busy(5.0, 5.0, 0.5)
    assert pace.rate.rate == pytest.approx(160, rel=0.01)
    assert pace.wait(5.5) == pytest.approx(0.01, rel=0.01)


def test_a_primary_that_refuses_everything_for_a_while_lowers_the_rate_once():
    pace = SendingPace(AdaptiveRate(600.0, 200.0, peak=210.0), 0.0)
    for second in range(20):
        pace.busy(float(second), float(second), 1.0)
    assert pace.rate.rate == pytest.approx(176)
    pace.sent(21.0, 2)
    pace.busy(22.0, 22.0, 1.0)
    assert pace.rate.rate < 160


def test_a_rate_that_is_not_used_does_not_grow():
    pace = SendingPace(AdaptiveRate(600.0, 200.0), 0.0)
    pace.sent(5.0, 10)
    pace.sent(10.0, 10)
    assert pace.rate.rate == 200
