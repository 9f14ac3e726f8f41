"""The cost job: what rows count as, and what they cost."""

import datetime as dt
import shutil
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

from pairbus.ledger import LedgerWriter, Store, write_receipts
from pairbus.ledger.compact import compact
from pairbus.pricing import GB, Rules
from pairbus.reports import cost_job as cost
from pairbus.reports.cost_report import cost_report, write_rows
from pairbus.reports.cost_stream import CostWatch
from pairbus.reports.ledger_tables import read_table
from pairbus.reports.price_lists import load_prices
from pairbus.runtime import ThreadRuntime

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]

START = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def clock_runtime(clock):
    """Threads as usual, and the time that a test wants."""
    runtime = ThreadRuntime()
    runtime.time = clock
    return runtime


class Ledger:
    """A ledger written as the parts of pairbus write it, at a time of the test's choosing."""

    def __init__(self, place):
        self.place = str(place)
        self.now = START.timestamp()
        self.writer = LedgerWriter(
            self.place, client_id="app-1", runtime=clock_runtime(lambda: self.now)
        )

    def minutes(self, count):
        self.now += 60 * count

    def through_the_backlog(self, count, size, steps, destination="orders"):
        """Count what a message's way through the backlog costs, as sender and syphon do."""
        path = "contoso/x-servicebus-transfer/0"
        rows = [
            {
                "message_id": f"{destination}-{self.now}-{n}",
                "destination": destination,
                "backlog_queue": path,
                "size": size,
            }
            for n in range(count)
        ]
        for stage, namespace, entity, operation in (
            ("send_backlog", "contoso-dr", path, "send"),
            ("receive_backlog", "contoso-dr", path, "receive"),
            ("send_primary", "contoso", destination, "send"),
        ):
            self.writer.count(
                namespace, entity, stage, operation,
                messages=count, size=size * count, billable=steps * count,
            )  # fmt: skip
        self.writer.count("contoso-dr", path, "settle", "complete", messages=count, billable=count)
        self.writer.backlogged(rows)
        at = dt.datetime.fromtimestamp(self.now, dt.UTC)
        write_receipts(self.place, [{**r, "event": "forwarded", "at": at} for r in rows])


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger")
    yield book
    book.writer.close()


def total(spark, ledger, rules):
    """What everything recorded costs."""
    rows = cost.billed(read_table(spark, ledger.place, "operations")[0], rules)
    return cost.totals(cost.priced(rows, load_prices(), rules)).collect()[0]


def by_name(lines):
    return {line.name[0] if len(line.name) == 1 else line.name: line for line in lines}


def test_a_small_and_a_large_message_are_charged_by_stage_and_size(spark, ledger):
    # 1 KB is 1 operation in each of the four stages, 200 KB are 4; each is settled twice
    ledger.through_the_backlog(1, 1024, 1)
    ledger.through_the_backlog(1, 200 * 1024, 4, "invoices")
    ledger.writer.close()
    report = cost_report(spark, ledger.place, load_prices())
    stages = by_name(report.by_stage)
    operations = {name: line.operations for name, line in stages.items()}
    assert operations == {
        ("send_primary", "", ""): 5,
        ("send_backlog", "", "extra"): 5,
        ("receive_backlog", "", "extra"): 5,
        ("receive_primary", "derived", ""): 5,
        ("settle", "", "extra"): 2,
        ("settle", "derived", ""): 2,
    }
    assert report.total.operations == 24
    # small: 6 operations against 3 without an outage; large: 18 against 9
    assert report.extra.operations == 12
    assert report.anyway.operations == 12
    assert report.derived.operations == 7
    assert report.total.money == Decimal("0.0000192")  # 24 at 0.80 per million
    assert report.total.transfer_bytes == 2 * 201 * 1024


def test_each_subscription_of_a_topic_receives_its_copy(spark, ledger):
    ledger.through_the_backlog(3, 1024, 1, "Events")
    ledger.writer.close()
    report = cost_report(spark, ledger.place, load_prices(), subscriptions={"events": 4})
    stages = by_name(report.by_stage)
    assert stages["receive_primary", "derived", ""].operations == 12
    assert stages["settle", "derived", ""].operations == 12


def test_prices_go_down_in_steps_through_the_month(spark, ledger):
    """99.5 million are used: half a million at 0.80, then 0.50; both hours share the steps."""
    for _ in range(2):
        ledger.writer.count(
            "n", "e", "send_primary", "send", messages=400_000, billable=400_000, calls=400_000
        )
        ledger.minutes(60)
    ledger.writer.close()
    rules = Rules(month_operations=99_500_000)
    prices = load_prices()
    report = cost_report(spark, ledger.place, prices, rules)
    assert [line.money for line in report.by_hour] == [
        Decimal("0.32"),
        Decimal("0.08") + Decimal("0.15"),
    ]
    assert report.total.money == prices.tier("standard").cost(800_000, after=99_500_000)
    assert total(spark, ledger, Rules(tier="basic"))["money"] == Decimal("0.04")


def test_uncertain_rules_are_switches_and_both_ends_are_told(spark, ledger):
    ledger.writer.count("n", "q", "idle_poll", "receive", messages=0)
    ledger.writer.count("n", "q", "send_backlog", "send", messages=50, size=50_000, billable=50)
    # a ping that the primary took ends the failover; two that it did not take came before
    ledger.writer.count("n", "e", "ping", "send", messages=1, size=128)
    for _ in range(2):
        ledger.writer.count("n", "e", "ping", "send-failed", messages=0, billable=0)
    ledger.writer.close()
    cheapest = Rules(batches="batch", empty_polls=False, failed_pings=False)
    dear, cheap = total(spark, ledger, Rules()), total(spark, ledger, cheapest)
    assert (dear["operations"], dear["operations_low"]) == (1 + 50 + 3, 1 + 1)
    assert cheap["operations"] == 2
    assert cheap["money"] == dear["money_low"] == Decimal("0.0000016")
    assert total(spark, ledger, Rules(failed_pings=False))["operations"] == 1 + 50 + 1
    # Rows that were summed up first are charged as the rows are.
    rows, _ = read_table(spark, ledger.place, "operations")
    for rules in (Rules(), cheapest):
        first = cost.condensed(cost.billed(cost.gathered(rows, "entity"), rules), "stage")
        last = cost.condensed(cost.billed(rows, rules), "stage")
        assert sorted(first.collect()) == sorted(last.collect())


def test_data_transfer_is_by_bytes_and_free_in_one_region(spark, ledger):
    ledger.writer.count("n", "q", "receive_backlog", "receive", messages=1, size=GB, billable=1)
    ledger.writer.count("n", "q", "send_primary", "send", messages=1, size=GB, billable=1)
    ledger.writer.close()
    far, near = total(spark, ledger, Rules()), total(spark, ledger, Rules(one_region=True))
    assert (far["transfer_money"], far["transfer_bytes"]) == (Decimal("0.02"), GB)
    assert (near["transfer_money"], near["transfer_bytes"]) == (0, 0)


def test_every_total_can_list_the_rows_it_came_from(spark, ledger, tmp_path):
    ledger.through_the_backlog(2, 1024, 1)
    ledger.minutes(1)
    ledger.through_the_backlog(3, 1024, 1)
    ledger.writer.close()
    rules = Rules()
    file = str(tmp_path / "rows.parquet")
    written = write_rows(spark, file, ledger.place, load_prices(), rules)
    rows = spark.read.parquet(f"file://{file}")
    assert rows.count() == written
    for total in cost.totals(rows, "entity", "stage", "derived").collect():
        keys = {name: total[name] for name in ("entity", "stage", "derived")}
        listed = rows.where(
            " and ".join(f"{name} <=> {value!r}" for name, value in keys.items())
        ).collect()
        assert len(listed) == total["rows"]
        assert sum(r["money"] for r in listed) == total["money"]
        assert all(r["writer"] is not None for r in listed) != total["derived"]


def test_a_copied_ledger_costs_nothing_twice(spark, ledger, tmp_path):
    ledger.through_the_backlog(2, 1024, 1)
    ledger.writer.close()
    copy = tmp_path / "copy"
    shutil.copytree(ledger.place, copy)
    once = cost_report(spark, ledger.place, load_prices())
    twice = cost_report(spark, [ledger.place, str(copy)], load_prices())
    assert twice.total == once.total
    assert any("repeat" in note for note in twice.notes)


def test_a_report_is_cut_by_its_dates(spark, ledger):
    for _ in range(3):
        ledger.writer.count("n", "e", "ping", "send")
        ledger.minutes(60)
    ledger.writer.close()
    report = cost_report(
        spark, ledger.place, load_prices(),
        start=START + dt.timedelta(hours=1), end=START + dt.timedelta(hours=2),
    )  # fmt: skip
    assert report.total.operations == 1
    assert [line.name for line in report.by_hour] == [("2026-03-01T13:00:00+00:00",)]


def test_the_timeline_shows_the_turn_to_the_backlog_and_home(spark, ledger):
    ledger.writer.count("contoso", "orders", "send_primary", "send", messages=7, billable=7)
    ledger.minutes(1)
    ledger.writer.count("contoso-dr", "b/0", "send_backlog", "send", messages=5, billable=5)
    ledger.writer.count("contoso", "orders", "ping", "send")
    ledger.minutes(1)
    ledger.writer.count("contoso-dr", "b/0", "receive_backlog", "receive", messages=5, billable=5)
    ledger.writer.close()
    report = cost_report(spark, ledger.place, load_prices())
    assert [point[1:] for point in report.timeline] == [(7, 0, 0, 0), (0, 5, 0, 1), (0, 0, 5, 0)]
    assert report.timeline[0][0] == START
    assert [line.name[0] for line in report.by_client] == ["app-1"]


def test_an_empty_ledger_costs_nothing(spark, ledger):
    Store.create(ledger.place)
    report = cost_report(spark, ledger.place, load_prices())
    assert report.total.operations == 0
    assert report.timeline == ()


def test_a_live_view_keeps_up_beside_a_compaction_and_drops_repeats(spark, ledger, tmp_path):
    ledger.through_the_backlog(2, 1024, 1)
    ledger.writer.count("contoso", "orders", "ping", "send-failed", messages=0, billable=0)
    ledger.writer.flush()
    rules, prices = Rules(), load_prices()
    told = []
    watch = CostWatch(
        spark, ledger.place, prices, rules, report=told.append, since=START,
        checkpoint=str(tmp_path / "checkpoint"), interval=0.05,
    )  # fmt: skip
    try:
        watch.catch_up()
        assert told[-1].total.operations == told[-1].added == 2 * 4 + 1
        # a file that was copied, and files that became one: nothing is new in them
        file = next((tmp_path / "ledger" / "operations").glob("*.parquet"))
        shutil.copy(file, file.with_name("copied.parquet"))
        ledger.minutes(1)
        ledger.through_the_backlog(1, 1024, 1)
        ledger.writer.flush()
        watch.catch_up()
        assert told[-1].added == 4
        compact(ledger.place)
        ledger.minutes(70)
        ledger.through_the_backlog(3, 1024, 1, "invoices")
        ledger.writer.flush()
        watch.catch_up()
    finally:
        watch.stop()
    assert sum(found.added for found in told) == told[-1].total.operations
    assert len(told[-1].by_hour) == 2
    rows = cost.billed(read_table(spark, ledger.place, "operations")[0], rules)
    batch = cost.totals(cost.priced(rows, prices, rules), "stage").collect()
    assert {s.name: (s.operations, s.money, s.transfer_money) for s in told[-1].by_stage} == {
        row["stage"]: (row["operations"], row["money"], row["transfer_money"]) for row in batch
    }


@pytest.fixture
def looks(ledger, monkeypatch):
    """The tables that a report reads; both are compacted after they are planned, before a read."""
    for _ in range(3):
        ledger.through_the_backlog(2, 1024, 1)
        ledger.minutes(1)
        ledger.writer.flush()
    looks = []

    def read_then_compact(spark_, locations, table):
        found = read_table(spark_, locations, table)
        looks.append(table)
        if len(looks) == 2:
            compact(ledger.place)
        return found

    monkeypatch.setattr("pairbus.reports.cost_report.read_table", read_then_compact)
    return looks


def test_a_compaction_in_the_middle_of_a_job_is_noticed(spark, ledger, looks):
    found = cost_report(spark, ledger.place, load_prices())
    assert len(looks) == 4
    assert cost_report(spark, ledger.place, load_prices()) == found
    assert found.total.messages == 3 * 2 * (4 + 2)


def test_a_compaction_while_rows_are_written_loses_none(spark, ledger, looks, tmp_path):
    file = str(tmp_path / "rows.parquet")
    rules, prices = Rules(), load_prices()
    count = write_rows(spark, file, ledger.place, prices, rules)
    assert len(looks) == 4
    found = pq.read_table(file)
    assert found.num_rows == count
    total = cost_report(spark, ledger.place, prices, rules).total
    assert sum(found["operations_billed"].to_pylist()) == total.operations
