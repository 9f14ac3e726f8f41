"""The cost of the operations in the ledger so far, and the cost per hour at the present rate."""

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal

from pairbus.monitoring.timeline import Row
from pairbus.pricing import STAGES, TRANSFER_STAGES, PriceList, Rules
from pairbus.reports.price_lists import load_prices

SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}


class RunningCost:
    """Prices operations with the newest price list in pairbus; uncertain operations are charged.

    An approximation without Spark for the live page; `pairbus cost report` is exact.
    """

    def __init__(self, prices: PriceList | None = None, rules: Rules | None = None) -> None:
        self._prices = prices
        self._rules = rules or Rules()

    def read(self, operations: Row, now: dt.datetime) -> Row:
        """Return operations and money: total, by stage, by entity, and per hour at this rate."""
        if self._prices is None:
            self._prices = load_prices()
        prices = self._prices
        recent = self.amount(operations["last_hour"])
        first: dt.datetime | None = operations["first"]
        hours = 1.0
        if first is not None:
            hours = min(1.0, max(60.0, (now - first).total_seconds()) / 3600)
        return {
            "currency": prices.currency,
            "symbol": SYMBOLS.get(prices.currency, prices.currency + " "),
            "operations": sum(row["billable"] for row in operations["all"]),
            "total": self.amount(operations["all"]),
            "per_hour": recent / Decimal(repr(hours)),
            "since": first,
            "stages": self.grouped(operations["all"], "stage"),
            "entities": self.grouped(operations["all"], "entity"),
            "note": f"Prices of {prices.date}, tier {self._rules.tier}; uncertain rules are read "
            "as charged. The command pairbus cost report gives exact figures by hour.",
        }

    def amount(self, rows: Iterable[Row]) -> Decimal:
        """Return the cost of some rows together."""
        tier = self._prices.tier(self._rules.tier) if self._prices else None
        if tier is None or self._prices is None:
            return Decimal(0)
        rows = list(rows)
        moved = sum(row["bytes"] for row in rows if row["stage"] in TRANSFER_STAGES)
        count = sum(row["billable"] for row in rows)
        return tier.cost(count, after=self._rules.month_operations) + self._prices.transfer(
            moved, self._rules
        )

    def grouped(self, rows: Iterable[Row], key: str) -> list[Row]:
        """Return messages, operations and money by stage or by entity."""
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(row[key], []).append(row)

        def place(name: str) -> tuple[int, str]:
            return (STAGES.index(name) if key == "stage" and name in STAGES else len(STAGES), name)

        return [
            {
                key: name,
                "messages": sum(row["messages"] for row in groups[name]),
                "operations": sum(row["billable"] for row in groups[name]),
                "amount": self.amount(groups[name]),
            }
            for name in sorted(groups, key=place)
        ]
