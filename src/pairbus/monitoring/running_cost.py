"""The cost of the operations in the ledger so far, and the cost per hour at the present rate."""

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from pairbus.monitoring.operations import Operations, Used
from pairbus.monitoring.records import EntityCost, Money, StageCost
from pairbus.pricing import STAGES, TRANSFER_STAGES, Rules
from pairbus.reports.price_lists import load_prices

SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}


class RunningCost:
    """Prices operations with the newest price list in pairbus; uncertain operations are charged.

    An approximation without Spark for the live page; `pairbus cost report` is exact.
    """

    def __init__(self) -> None:
        self._prices = load_prices()
        self._rules = Rules()

    def read(self, operations: Operations, now: dt.datetime) -> Money:
        """Return operations and money: total, by stage, by entity, and per hour at this rate."""
        prices, first = self._prices, operations.first
        hours = 1.0
        if first is not None:
            hours = min(1.0, max(60.0, (now - first).total_seconds()) / 3600)
        stages = self._grouped(operations.all, lambda used: used.stage)
        entities = self._grouped(operations.all, lambda used: used.entity)
        return Money(
            currency=prices.currency,
            symbol=SYMBOLS.get(prices.currency, prices.currency + " "),
            operations=sum(used.billable for used in operations.all),
            total=self._amount(operations.all),
            per_hour=self._amount(operations.last_hour) / Decimal(repr(hours)),
            since=first,
            stages=[StageCost(stage=name, **stages[name]) for name in sorted(stages, key=_place)],
            entities=[EntityCost(entity=name, **entities[name]) for name in sorted(entities)],
            note=f"Prices of {prices.date}, tier {self._rules.tier}; uncertain rules are read "
            "as charged. The command pairbus cost report gives exact figures by hour.",
        )

    def _amount(self, operations: Sequence[Used]) -> Decimal:
        """Return the cost of some operations together."""
        moved = sum(used.bytes for used in operations if used.stage in TRANSFER_STAGES)
        count = sum(used.billable for used in operations)
        tier = self._prices.tier(self._rules.tier)
        return tier.cost(count, after=self._rules.month_operations) + self._prices.transfer(
            moved, self._rules
        )

    def _grouped(
        self, operations: Sequence[Used], name_of: Callable[[Used], str]
    ) -> dict[str, dict[str, Any]]:
        """Return messages, operations and money by name."""
        groups: dict[str, list[Used]] = {}
        for used in operations:
            groups.setdefault(name_of(used), []).append(used)
        return {
            name: {
                "messages": sum(used.messages for used in group),
                "operations": sum(used.billable for used in group),
                "amount": self._amount(group),
            }
            for name, group in groups.items()
        }


def _place(stage: str) -> tuple[int, str]:
    return STAGES.index(stage) if stage in STAGES else len(STAGES), stage
