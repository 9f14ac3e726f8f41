"""The price model, and the arithmetic of the old documentation."""

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.names import billable
from pairbus.pricing import (
    PriceError,
    Rules,
    format_amount,
    format_size,
    hourly_prices,
    parse_prices,
)
from pairbus.reports.estimate import Workload, estimate
from pairbus.reports.price_lists import load_prices, shipped

STANDARD = {"base_per_month": 0, "steps": [{"from": 0, "per_million": 1}]}
MINIMAL = {
    "date": dt.date(2026, 1, 1),
    "currency": "EUR",
    "tiers": {"standard": STANDARD},
    "transfer": {"per_gb": Decimal("0.02")},
}


@pytest.mark.parametrize(
    ("size", "operations"),
    [(0, 1), (1, 1), (65536, 1), (65537, 2), (96 * 1024, 2), (200 * 1024, 4), (256 * 1024, 4)],
)
def test_each_64_kb_is_one_operation(size, operations):
    assert billable(size) == operations


def test_prices_that_ship_are_whole_and_dated():
    assert shipped()
    for name in shipped():
        prices = load_prices(name)
        assert prices.date.isoformat().startswith(name)
        assert prices.source
        assert {"basic", "standard", "premium"} <= set(prices.tiers)


def test_the_month_goes_through_the_steps():
    tier = load_prices().tier("standard")
    million = 1_000_000
    assert tier.cost(13 * million) == 0
    assert tier.cost(14 * million) == Decimal("0.80")
    assert tier.cost(100 * million) == Decimal("69.60")
    assert tier.cost(101 * million) == Decimal("70.10")
    assert tier.cost(2 * million, after=99 * million) == Decimal("1.30")
    assert tier.cost(million, after=3000 * million) == Decimal("0.20")


@given(st.lists(st.integers(0, 10**9), max_size=20), st.integers(0, 10**9))
def test_what_hours_cost_adds_up_to_what_the_month_costs(counts, after):
    tier = load_prices().tier("standard")
    start = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    hours = {start + dt.timedelta(hours=n): count for n, count in enumerate(counts)}
    each = hourly_prices(hours, tier, after=after)
    total = sum((each[hour] * count for hour, count in hours.items()), Decimal(0))
    assert abs(total - tier.cost(sum(counts), after=after)) < Decimal("1e-9")


def test_a_new_month_begins_at_the_first_step():
    tier = load_prices().tier("standard")
    hours = {
        dt.datetime(2026, 3, 31, 23, tzinfo=dt.UTC): 1_000_000,
        dt.datetime(2026, 4, 1, 0, tzinfo=dt.UTC): 1_000_000,
    }
    each = hourly_prices(hours, tier, after=99_500_000)
    assert list(each.values()) == [Decimal("0.00000065")] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": None}, "date must be a date"),
        ({"tiers": {}}, "at least one tier"),
        ({"transfer": {}}, "per_gb is missing"),
        ({"transfer": 3}, "must be a table with per_gb"),
        ({"transfer": {"per_gb": 0.5}}, "must be a number"),
        ({"tiers": {"standard": 3}}, "must be a table"),
        (
            {"tiers": {"standard": {**STANDARD, "base_per": "planet"}}},
            "subscription or namespace",
        ),
        ({"transfer": {"per_gb": Decimal(-1)}}, "at least 0"),
        ({"transfer": {"per_gb": "cheap"}}, "must be a number"),
    ],
)
def test_a_price_list_that_lacks_something_says_what(change, message):
    with pytest.raises(PriceError, match=message) as caught:
        parse_prices({**MINIMAL, **change}, "my.toml")
    assert str(caught.value).startswith("my.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "at least one step"),
        ([{"from": 1, "per_million": 1}], "no price for operations from 0 to 1 million"),
        (
            [{"from": 0, "to": 13, "per_million": 0}, {"from": 15, "per_million": 1}],
            "no price for operations from 13 to 15 million",
        ),
        (
            [{"from": 0, "to": 13, "per_million": 0}, {"from": 10, "per_million": 1}],
            "two prices for operations from 10 to 13 million",
        ),
        ([{"from": 0, "to": 13, "per_million": 0}], "above 13 million"),
        ([{"from": 0, "per_million": 0}, {"from": 1, "per_million": 0}], "only the last step"),
        ([{"from": 0, "to": 0, "per_million": 0}], "must be above"),
        ([{"from": 0}], "per_million is missing"),
        (["free"], "must be a table"),
    ],
)
def test_a_hole_in_the_steps_is_found(steps, message):
    tiers = {"standard": {"base_per_month": 0, "steps": steps}}
    with pytest.raises(PriceError, match=message):
        parse_prices({**MINIMAL, "tiers": tiers}, "my.toml")


def test_a_price_file_is_read_exactly_or_refused_in_one_line(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(
        'date = 2026-01-01\ncurrency = "EUR"\n[tiers.standard]\nbase_per_month = 0.1\n'
        "steps = [{ from = 0, per_million = 0.1 }]\n[transfer]\nper_gb = 0\n"
    )
    assert load_prices(str(file)).tier("standard").cost(10_000_000) == 1
    file.write_text("date =")
    with pytest.raises(PriceError, match="not TOML"):
        load_prices(str(file))
    with pytest.raises(PriceError, match="No such file"):
        load_prices(str(tmp_path / "none.toml"))
    with pytest.raises(PriceError, match="no prices for tier 'gold'"):
        load_prices().tier("gold")


# -- the arithmetic of the old documentation


def test_idle_polls_of_ten_queues():
    result = estimate(Workload(queues=10), load_prices())
    assert {name: c.operations for name, c in result.idle.items()} == {
        "hour": 40,
        "day": 960,
        "30 days": 28_800,
    }
    assert round(result.idle["30 days"].money, 3) == Decimal("0.023")
    # uncertain: they may be free
    assert all(charge.operations_low == 0 for charge in result.idle.values())
    fast = estimate(Workload(queues=10, poll=120), load_prices())
    assert fast.idle["30 days"].operations == 216_000
    assert round(fast.idle["30 days"].money, 2) == Decimal("0.17")


def test_idle_polls_end_where_idle_receivers_are_detached_after_ten_minutes():
    (line,) = [
        line
        for line in estimate(Workload(queues=10), load_prices()).assumptions
        if "detaches idle receivers" in line
    ]
    assert line.endswith(
        "60 receives per hour, 1,440 receives per day, 43,200 receives per 30 days"
    )
    short = estimate(Workload(queues=10, poll=600), load_prices())
    assert not any("detaches idle receivers" in line for line in short.assumptions)


def test_a_small_message_is_six_operations_against_three():
    result = estimate(Workload(rate=1, outage=1, clients=1, entities=1), load_prices())
    assert result.total.operations == 6
    assert result.anyway.operations == 3
    stages = {(c.stage, c.where): c.operations for c in result.stages}
    assert stages["send_backlog", "secondary"] == stages["receive_backlog", "secondary"] == 1
    assert stages["send_primary", "primary"] == stages["receive_primary", "primary"] == 1


def test_pings_are_entities_by_clients_by_minutes_of_the_outage():
    workload = Workload(clients=200, entities=12, outage=7200)
    result = estimate(workload, load_prices())
    pings = next(charge for charge in result.stages if charge.stage == "ping")
    assert pings.operations == 200 * 12 * 120
    # uncertain: those that the primary did not take may be free, all but the one that ends it
    assert pings.operations_low == 200 * 12
    cheaper = estimate(workload, load_prices(), Rules(failed_pings=False))
    assert cheaper.total.operations == result.total.operations - 200 * 12 * 119


def test_a_million_small_messages_cost_2_40_more():
    result = estimate(Workload(rate=1_000_000, outage=1, ping_interval=60), load_prices())
    assert result.extra.operations == 3_000_000
    assert result.extra.money == Decimal("2.40")


def test_a_message_of_200_kb_is_four_operations_in_each_stage():
    result = estimate(Workload(rate=1, outage=1, size=200 * 1024), load_prices())
    stages = {(c.stage, c.where): c.operations for c in result.stages}
    assert stages["send_backlog", "secondary"] == stages["receive_backlog", "secondary"] == 4
    assert stages["settle", "secondary"] == stages["settle", "primary"] == 1


def test_pings_are_entities_times_clients_times_minutes():
    result = estimate(Workload(clients=200, entities=12, outage=7200), load_prices())
    assert next(c for c in result.stages if c.stage == "ping").operations == 200 * 12 * 120


def test_rules_read_the_cheaper_way_and_one_region_make_it_cheaper():
    rules = Rules(one_region=True, empty_polls=False, failed_pings=False, batches="batch")
    result = estimate(Workload(rate=1, outage=10, batch=5), load_prices(), rules)
    assert result.idle["hour"].operations == 0
    assert result.total.transfer_money == 0
    assert result.total.operations == result.total.operations_low
    assert any("one region" in line for line in result.assumptions)


def test_both_ends_of_a_batch_are_told():
    workload = Workload(rate=1000, outage=1, size=1000, batch=50)
    dear = estimate(workload, load_prices())
    send = next(c for c in dear.stages if c.stage == "send_backlog")
    assert (send.operations, send.operations_low) == (1000, 20)
    cheap = estimate(workload, load_prices(), Rules(batches="batch"))
    assert next(c for c in cheap.stages if c.stage == "send_backlog").operations == 20


def test_a_second_premium_namespace_is_said():
    result = estimate(Workload(), load_prices(), Rules(tier="premium"))
    assert result.total.money == 0
    assert result.base_per_month == Decimal("677.08")
    assert any("677.08" in line for line in result.assumptions)


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"rate": -1}, {"poll": 0}])
def test_a_workload_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Workload(**wrong)


@given(
    st.integers(1, 50), st.integers(0, 5000), st.integers(0, 300_000), st.integers(1, 4),
    st.integers(0, 200_000_000),
)  # fmt: skip
def test_the_outage_adds_what_the_total_has_above_the_usual(clients, rate, size, subs, month):
    prices, rules = load_prices(), Rules(month_operations=month)
    result = estimate(
        Workload(clients=clients, rate=rate, size=size, subscriptions=subs, outage=10),
        prices,
        rules,
    )
    assert result.total.operations == result.anyway.operations + result.extra.operations
    assert result.total.money == prices.tier("standard").cost(result.total.operations, after=month)
    assert result.anyway.money == prices.tier("standard").cost(
        result.anyway.operations, after=month
    )


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "0.00"),
        ("1234.567", "1,234.57"),
        ("0.1", "0.10"),
        ("0.0500", "0.05"),
        ("0.000001", "0.000001"),
        ("0.0000009", "<0.000001"),
    ],
)
def test_amounts_show_something_of_the_smallest(amount, shown):
    assert format_amount(Decimal(amount)) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KB"), (3 << 20, "3.0 MB"), (5 << 40, "5.0 TB")],
)
def test_sizes_are_shown_in_the_largest_unit_that_fits(count, shown):
    assert format_size(count) == shown
