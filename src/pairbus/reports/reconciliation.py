"""The reconciliation: its job run over a ledger, as plain data for one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pairbus.extras import needs
from pairbus.reports import reconcile_job as reconcile
from pairbus.reports.cost_report import TOP, plan_notes
from pairbus.reports.fates import COUNTS
from pairbus.reports.ledger_tables import beginning_again, read_table, shown_locations
from pairbus.reports.prefilter import closed_verdicts, in_open_buckets, open_buckets, screen
from pairbus.reports.prefilter import names as destination_names
from pairbus.reports.rows import plain

with needs("spark"):
    from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The fate of every message; `balanced` if none was lost or delivered more than once."""

    locations: tuple[str, ...]
    balanced: bool
    verdict: str
    totals: Mapping[str, int]
    by_destination: tuple[Mapping[str, Any], ...]
    lost: tuple[Mapping[str, Any], ...]
    more_than_once: tuple[Mapping[str, Any], ...]
    unrecorded: tuple[Mapping[str, Any], ...]
    out_of_order: tuple[Mapping[str, Any], ...]
    missed_minutes: tuple[Mapping[str, Any], ...]
    complete: bool
    peeked: bool
    notes: tuple[str, ...] = field(default=())


@beginning_again
def balance(
    spark: SparkSession,
    locations: str | Sequence[str],
    waiting: DataFrame | None = None,
    *,
    limit: int = 20,
) -> Reconciliation:
    """Run the reconciliation over one ledger or several.

    Args:
        spark: the session.
        locations: ledgers, which may overlap.
        waiting: messages peeked from the backlog queues (see `save_peeked`); without it,
            messages that still wait there count as lost.
        limit: messages that are named for each finding.

    Raises:
        LedgerError: a location is not a ledger.
    """
    messages, plan = read_table(spark, locations, "messages")
    operations, operations_plan = read_table(spark, locations, "operations")
    # Three answers that do not depend on each other: on a small ledger most of their time is the
    # driver's, for planning and compiling, so they are asked for at the same time.
    with ThreadPoolExecutor(2) as beside:
        disorder = beside.submit(_disorder, messages, limit)
        absent = beside.submit(lambda: _missed(operations, messages))
        rows, totals, named = _fates(messages, waiting, limit)
    per_place, some = disorder.result()
    missed = absent.result()
    totals["out_of_order"] = sum(per_place.values())
    for row in rows:
        row["out_of_order"] = per_place.get(row["destination"].lower(), 0)
    complete = not (plan.gaps or plan.unreadable or missed)
    balanced = totals["lost"] == 0 and totals["copies"] == 0
    return Reconciliation(
        locations=shown_locations(locations),
        balanced=balanced,
        verdict=verdict(totals, complete=complete, peeked=waiting is not None),
        totals=totals,
        by_destination=tuple(rows),
        lost=named["lost"],
        more_than_once=named["more_than_once"],
        unrecorded=named["unrecorded"],
        out_of_order=tuple(plain(row) for row in some),
        missed_minutes=tuple(plain(row) for row in missed),
        complete=complete,
        peeked=waiting is not None,
        notes=(*plan_notes(plan), *plan_notes(operations_plan)),
    )


def _fates(
    messages: DataFrame, waiting: DataFrame | None, limit: int
) -> tuple[list[dict[str, Any]], dict[str, int], dict[str, tuple[Mapping[str, Any], ...]]]:
    """Return what became of the messages, by destination and in all, and some of them by name."""
    screened = screen(messages, waiting).persist()
    try:
        judged = doubtful(screened, messages, waiting)
        found = by_destination(screened, judged).orderBy("destination").collect()
        rows = [row.asDict() for row in found]
        totals = {name: sum(int(row[name] or 0) for row in rows) for name in COUNTS}

        def names(column: str) -> tuple[Mapping[str, Any], ...]:
            if judged is None or not totals[column]:
                return ()
            what = F.col(column) > 0
            frame = reconcile.named(judged, what, messages, waiting, limit=limit)
            return tuple(plain(row) for row in frame.collect())

        return rows, totals, {n: names(n) for n in ("lost", "more_than_once", "unrecorded")}
    finally:
        screened.unpersist()


def _disorder(messages: DataFrame, limit: int) -> tuple[dict[str, int], list[Any]]:
    """Return how many messages were forwarded out of order, by destination, and some of them."""
    disordered = reconcile.out_of_order(messages).persist()
    try:
        per_place = {
            row["key"]: int(row["count"])
            for row in disordered.groupBy(F.lower("destination").alias("key")).count().collect()
        }
        return per_place, disordered.orderBy("at").limit(limit).collect() if per_place else []
    finally:
        disordered.unpersist()


def _missed(operations: DataFrame, messages: DataFrame) -> list[Any]:
    return list(reconcile.missed_minutes(operations, messages).limit(TOP).collect())


def doubtful(
    screened: DataFrame, messages: DataFrame, waiting: DataFrame | None = None
) -> DataFrame | None:
    """Return the verdict on each message of the open buckets; None if there are none."""
    numbers = open_buckets(screened)
    open_rows = sum(numbers.values())
    if not open_rows:
        return None
    held = None if waiting is None else in_open_buckets(waiting, screened, numbers)
    parts = open_rows // reconcile.PARTITION_ROWS + 1 if open_rows > 1_000_000 else None
    return reconcile.verdicts(
        reconcile.tally(in_open_buckets(messages, screened, numbers), held, partitions=parts)
    )


def by_destination(screened: DataFrame, judged: DataFrame | None) -> DataFrame:
    """Sum up closed buckets and single verdicts by destination."""
    sums = reconcile.by_destination(closed_verdicts(screened))
    if judged is not None:
        sums = reconcile.by_destination(sums.unionByName(reconcile.by_destination(judged)))
    return destination_names(screened).join(sums, "place").drop("place")


def verdict(totals: Mapping[str, int], *, complete: bool = True, peeked: bool = True) -> str:
    """Return the result in one line."""
    count = f"{totals['expected']:,} message(s)"
    faults = []
    if totals["lost"]:
        faults.append(f"{totals['lost']:,} lost")
    if totals["copies"]:
        faults.append(f"{totals['more_than_once']:,} delivered more than once")
    if faults:
        line = f"The ledger does not balance: of {count} {', '.join(faults)}"
        if totals["lost"] and not peeked:
            line += " or still waiting (the backlog queues were not peeked)"
        elif totals["lost"] and not complete:
            line += " or without a receipt (rows of the ledger are missing)"
        return line + "."
    where = []
    for name, words in (
        ("once", "delivered once"),
        ("waiting", "waiting"),
        ("dead_lettered", "dead-lettered"),
        ("expired", "expired"),
        ("completed", "completed unsent"),
    ):
        if totals[name]:
            where.append(f"{totals[name]:,} {words}")
    line = f"The ledger balances: {count}, {', '.join(where) or 'nothing happened'}, none lost"
    if totals["unrecorded"]:
        line += f"; {totals['unrecorded']:,} unrecorded by their sender"
    if totals.get("out_of_order"):
        line += f"; {totals['out_of_order']:,} out of order"
    return line + ("." if complete else "; but rows of the ledger are missing.")
