"""The cost report: the cost job run over a ledger, as plain data of a page's size."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

from ..core.pricing import STAGES, PriceList, Rules
from ..ledger.plan import Plan
from . import cost
from .tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOP = 200
"""Lines of a list that a report shows at most."""

POINTS = 2000
"""Points of a timeline that a report shows at most; longer ones go by the hour."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a cost report: operations and money of one thing."""

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
    """What was spent, by what; `anyway` and `extra` are together the `total`."""

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
    rows, notes = cost_rows(
        spark, locations, rules, start=start, end=end, subscriptions=subscriptions
    )
    small = cost.condensed(
        rows, "minute", "namespace", "entity", "stage", "derived", "extra"
    ).persist()
    try:
        return _assemble(spark, locations, rows, small, prices, rules, notes, start, end)
    finally:
        small.unpersist()


def cost_rows(
    spark: SparkSession,
    locations: str | Sequence[str],
    rules: Rules,
    *,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    subscriptions: Mapping[str, int] | None = None,
) -> tuple[DataFrame, list[str]]:
    """Return billed and derived rows of a ledger, and what is to be said of its files."""
    operations, plan = read_table(spark, locations, "operations")
    messages, messages_plan = read_table(spark, locations, "messages")
    rows = cost.billed(operations, rules).unionByName(cost.derived(messages, subscriptions))
    return cost.between(rows, start, end), [*plan_notes(plan), *plan_notes(messages_plan)]


def plan_notes(plan: Plan) -> list[str]:
    """Say what was left out of a table, and what is missing in it."""
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


def _assemble(
    spark: SparkSession,
    locations: str | Sequence[str],
    rows: DataFrame,
    small: DataFrame,
    prices: PriceList,
    rules: Rules,
    notes: list[str],
    start: dt.datetime | None,
    end: dt.datetime | None,
) -> CostReport:
    money = cost.priced(small, prices, rules).persist()
    try:
        by_stage = _lines(cost.totals(money, "stage", "derived", "extra"), "stage")
        flagged = cost.totals(money, "extra", "derived").collect()
        by_hour = _lines(cost.totals(money, "hour").orderBy("hour").limit(10_000), "hour")
        by_entity = _lines(
            cost.totals(money, "namespace", "entity").orderBy(F.desc("money")).limit(TOP),
            "namespace", "entity",
        )  # fmt: skip
        unit = "minute" if money.select("minute").distinct().count() <= POINTS else "hour"
        timeline = cost.timeline(money, unit).limit(POINTS).collect()
        hours = cost.condensed(
            rows.withColumn("minute", F.date_trunc("hour", "minute")),
            "minute",
            "client_id",
            "stage",
        )
        # prices of the hours come from all rows, so that a client's share adds up with the others'
        by_client = _lines(
            cost.totals(cost.priced(hours, prices, rules), "client_id")
            .orderBy(F.desc("money"), "client_id")
            .limit(TOP),
            "client_id",
        )
    finally:
        money.unpersist()
    lines = [(r["extra"], r["derived"], _line((), r)) for r in flagged]
    return CostReport(
        locations=(locations,) if isinstance(locations, str) else tuple(locations),
        start=start if start or not by_hour else dt.datetime.fromisoformat(by_hour[0].name[0]),
        end=end if end or not by_hour else _hour_after(by_hour[-1].name[0]),
        currency=prices.currency,
        prices_of=prices.date.isoformat(),
        prices_file=prices.name,
        rules=rules,
        total=_add("total", [line for _, _, line in lines]),
        anyway=_add("anyway", [line for extra, _, line in lines if not extra]),
        extra=_add("extra", [line for extra, _, line in lines if extra]),
        derived=_add("derived", [line for _, derived, line in lines if derived]),
        by_stage=tuple(_stage_lines(by_stage)),
        by_entity=tuple(by_entity),
        by_hour=tuple(by_hour),
        by_client=tuple(by_client),
        timeline_unit=unit,
        timeline=tuple(
            (
                r["time"].astimezone(dt.UTC), r["sent_primary"], r["sent_backlog"], r["drained"],
                r["pings"],
            )
            for r in timeline
        ),
        notes=tuple(notes),
    )  # fmt: skip


def _stage_lines(lines: list[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: (STAGES.index(line.name[0]), line.name[1:]))


def _hour_after(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text) + dt.timedelta(hours=1)


def _lines(frame: DataFrame, *keys: str) -> list[Line]:
    extra = [name for name in ("derived", "extra") if name in frame.columns and "stage" in keys]
    lines = []
    for row in frame.collect():
        name = [_text(row[key]) for key in keys]
        if extra:
            name += ["derived" if row["derived"] else "", "extra" if row["extra"] else ""]
        lines.append(_line(tuple(name), row))
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return str(value)


def _line(name: tuple[str, ...], row: Any) -> Line:
    return Line(
        name=name,
        calls=int(row["calls"] or 0),
        messages=int(row["messages"] or 0),
        bytes=int(row["bytes"] or 0),
        operations=int(row["operations"] or 0),
        operations_low=int(row["operations_low"] or 0),
        money=row["money"] or Decimal(0),
        money_low=row["money_low"] or Decimal(0),
        transfer_bytes=int(row["transfer_bytes"] or 0),
        transfer_money=row["transfer_money"] or Decimal(0),
        rows=int(row["rows"] or 0),
    )


def _add(name: str, lines: list[Line]) -> Line:
    def total(field_: str) -> Any:
        return sum((getattr(line, field_) for line in lines), Decimal(0))

    return Line(
        name=(name,),
        calls=int(total("calls")),
        messages=int(total("messages")),
        bytes=int(total("bytes")),
        operations=int(total("operations")),
        operations_low=int(total("operations_low")),
        money=total("money"),
        money_low=total("money_low"),
        transfer_bytes=int(total("transfer_bytes")),
        transfer_money=total("transfer_money"),
        rows=int(total("rows")),
    )
