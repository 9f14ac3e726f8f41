"""The cost report: the cost job run over a ledger, as plain data for one page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pairbus.ledger.plan import Plan
from pairbus.pricing import STAGES, PriceList, Rules
from pairbus.reports import cost_job as cost
from pairbus.reports.ledger_tables import beginning_again, read_table, shown_locations
from pairbus.reports.rows import plain, save_rows
from pairbus.reports.sums import add_up, from_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOP = 200
"""Lines of a list that a report shows at most."""

POINTS = 2000
"""Points of a timeline that a report shows at most; longer ones go by the hour."""

LINES = 100_000
"""Lines of one group that leave Spark at most."""

GROUPS = (
    ("stage", "derived", "extra"),
    ("hour",),
    ("namespace", "entity"),
    ("time", "stage", "derived"),
)

TIMELINE = ("send_primary", "send_backlog", "receive_backlog", "ping")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a cost report: operations and money of one group."""

    name: tuple[str, ...]
    calls: int
    messages: int
    bytes: int
    operations: int
    operations_low: int
    money: Decimal
    money_low: Decimal
    transfer_bytes: int
    transfer_money: Decimal
    rows: int

    @property
    def spent(self) -> Decimal:
        """Operations and data transfer together."""
        return self.money + self.transfer_money


@dataclass(frozen=True, slots=True)
class CostReport:
    """The cost in several groupings; `anyway` and `extra` together are the `total`."""

    locations: tuple[str, ...]
    start: dt.datetime | None
    end: dt.datetime | None
    currency: str
    prices_of: str
    prices_file: str
    rules: Rules
    total: Line
    anyway: Line
    extra: Line
    derived: Line
    by_stage: tuple[Line, ...]
    by_entity: tuple[Line, ...]
    by_hour: tuple[Line, ...]
    by_client: tuple[Line, ...]
    timeline_unit: str
    timeline: tuple[tuple[dt.datetime, int, int, int, int], ...]
    notes: tuple[str, ...] = ()


@beginning_again
def cost_report(
    spark: SparkSession,
    locations: str | Sequence[str],
    prices: PriceList,
    rules: Rules | None = None,
    *,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    subscriptions: Mapping[str, int] | None = None,
) -> CostReport:
    """Run the cost job over one ledger or several.

    Raises:
        LedgerError: a location is not a ledger.
        PriceError: the price list lacks the tier.
    """
    rules = rules or Rules()
    operations, messages, notes = _tables(spark, locations, start, end)
    derived_rows = cost.derived(messages, subscriptions)
    places = ["minute", "namespace", "entity", "stage"]
    small = cost.condensed(
        cost.billed(cost.gathered(operations, *places), rules).unionByName(
            derived_rows, allowMissingColumns=True
        ),
        *places, "derived", "extra",
    ).persist()  # fmt: skip
    hourly = operations.withColumn("minute", cost.span_start("minute"))
    clients = cost.condensed(
        cost.billed(cost.gathered(hourly, "minute", "client_id"), rules).unionByName(
            derived_rows.withColumn("minute", cost.span_start("minute")), allowMissingColumns=True
        ),
        "minute", "client_id", "stage",
    )  # fmt: skip
    try:
        hours, span = cost.hour_prices(small, prices.tier(rules.tier), rules)
        unit = "minute" if span <= POINTS * dt.timedelta(minutes=1) else "hour"
        seconds = 60 if unit == "minute" else 3600
        money = cost.with_prices(small, hours, prices, rules)
        money = money.withColumn("time", cost.span_start("minute", seconds))
        paid = cost.with_prices(clients, hours, prices, rules)
        # Both concurrently: over a small ledger most of the time is planning and compiling.
        with ThreadPoolExecutor(1) as beside:
            other = beside.submit(lambda: cost.overview(paid, ["client_id"], top=TOP).collect())
            found = cost.overview(money, *GROUPS, top=LINES).collect()
        by_client = other.result()
    finally:
        small.unpersist()
    groups: list[list[Line]] = [[] for _ in GROUPS]
    for row in sorted(found, key=lambda r: r["group"]):
        groups[row["group"]].append(_line(GROUPS[row["group"]], row))
    by_stage = sorted(groups[0], key=lambda line: (STAGES.index(line.name[0]), line.name[1:]))
    by_hour = sorted(groups[1], key=lambda line: line.name)
    return CostReport(
        locations=shown_locations(locations),
        start=start if start or not by_hour else dt.datetime.fromisoformat(by_hour[0].name[0]),
        end=end if end or not by_hour else _hour_after(by_hour[-1].name[0]),
        currency=prices.currency,
        prices_of=prices.date.isoformat(),
        prices_file=prices.name,
        rules=rules,
        total=add_up(Line, by_stage, name=("total",)),
        anyway=add_up(Line, [line for line in by_stage if not line.name[2]], name=("anyway",)),
        extra=add_up(Line, [line for line in by_stage if line.name[2]], name=("extra",)),
        derived=add_up(Line, [line for line in by_stage if line.name[1]], name=("derived",)),
        by_stage=tuple(by_stage),
        by_entity=tuple(sorted(groups[2], key=lambda line: (-line.spent, line.name))[:TOP]),
        by_hour=tuple(by_hour),
        by_client=tuple(_line(("client_id",), row) for row in by_client),
        timeline_unit=unit,
        timeline=_timeline(groups[3]),
        notes=tuple(notes),
    )


def _tables(
    spark: SparkSession,
    locations: str | Sequence[str],
    start: dt.datetime | None,
    end: dt.datetime | None,
) -> tuple[DataFrame, DataFrame, list[str]]:
    """Read the rows of both tables whose minutes begin between two times."""
    start, end = _next_minute(start), _next_minute(end)
    operations, plan = read_table(spark, locations, "operations")
    messages, messages_plan = read_table(spark, locations, "messages")
    return (
        cost.between(operations, start, end),
        cost.between(messages, start, end, time="at"),
        [*plan_notes(plan), *plan_notes(messages_plan)],
    )


def _next_minute(time: dt.datetime | None) -> dt.datetime | None:
    """Return the first minute that begins at a time or after it."""
    if time is None:
        return None
    rest = dt.timedelta(seconds=time.second, microseconds=time.microsecond)
    return time + (dt.timedelta(minutes=1) - rest) if rest else time


def plan_notes(plan: Plan) -> list[str]:
    """Return notes on rows of a table that were left out or are missing."""
    notes = []
    if plan.repeats:
        notes.append(f"{len(plan.repeats)} {plan.table} file(s) repeat others and were left out")
    if plan.overlapping:
        notes.append(
            f"{len(plan.overlapping)} {plan.table} file(s) overlap; repeated rows were dropped"
        )
    notes.extend(f"not a whole Parquet file, left out: {name}" for name in plan.unreadable[:TOP])
    notes.extend(f"missing: {gap}" for gap in plan.gaps[:TOP])
    return notes


def _timeline(lines: list[Line]) -> tuple[tuple[dt.datetime, int, int, int, int], ...]:
    points: dict[str, list[int]] = {}
    for line in lines:
        time, stage, derived = line.name
        if stage in TIMELINE and not derived:
            # A ping that the primary did not take is a call without a message.
            number = line.calls if stage == "ping" else line.messages
            points.setdefault(time, [0, 0, 0, 0])[TIMELINE.index(stage)] += number
    return tuple(
        (dt.datetime.fromisoformat(time), p[0], p[1], p[2], p[3])
        for time, p in sorted(points.items())
    )


def _hour_after(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text) + dt.timedelta(hours=1)


def _text(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return key if value else ""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return str(value)


def _line(keys: Sequence[str], row: Any) -> Line:
    return from_row(Line, row, name=tuple(_text(row[key], key) for key in keys))


@beginning_again
def write_rows(
    spark: SparkSession,
    file: str,
    locations: str | Sequence[str],
    prices: PriceList,
    rules: Rules,
    *,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    subscriptions: Mapping[str, int] | None = None,
) -> int:
    """Write every row that the totals of a report came from, with its money, as one Parquet file.

    Returns:
        How many there are.
    """
    operations, messages, _ = _tables(spark, locations, start, end)
    rows = cost.billed(operations, rules).unionByName(cost.derived(messages, subscriptions))
    money = cost.priced(rows, prices, rules)
    # partition by partition: the driver never holds the whole ledger
    return save_rows(map(plain, money.toLocalIterator()), money.limit(0).toArrow().schema, file)
