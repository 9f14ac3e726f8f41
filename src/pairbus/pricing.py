"""Billable operations and their cost: pure arithmetic over dated prices.

The service charges operations, and size in steps of 64 KB. Prices change and so they are data: a
price list is a mapping read from a dated file (see `pairbus.reports.price_lists`) and checked here.
Money is `Decimal` and is never rounded before it is shown.

Three rules of the service are not certain: whether a poll that ends empty is charged, whether a
ping that the primary did not accept is, and whether a batch counts by message or by its whole size.
`Rules` holds them as switches. The defaults are the expensive interpretation; a report can also
show the cost with the cheaper one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

STAGES = (
    "send_primary",
    "send_backlog",
    "receive_backlog",
    "receive_primary",
    "settle",
    "ping",
    "idle_poll",
    "management",
)
"""The stages of a message and the other charged operations, in the order of the reports."""

STAGE_NAMES = {
    "send_primary": "send to primary",
    "send_backlog": "send to backlog",
    "receive_backlog": "receive from backlog",
    "receive_primary": "receive from primary",
    "settle": "settle",
    "ping": "ping",
    "idle_poll": "idle poll",
    "management": "management",
}
"""The stages as reports name them."""

TRANSFER_STAGES = ("send_backlog", "receive_backlog")
"""The stages whose bytes leave a region when the two namespaces are in different ones."""

GB = 1024**3
MILLION = 1_000_000
MONTH_HOURS = 730
"""Hours that a monthly base charge is divided by, as on the price pages."""


class PriceError(ValueError):
    """A price list is not usable; the message is one line that names the faulty entry."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The switches of the cost model; the defaults are the more expensive interpretation.

    Args:
        empty_polls: whether a receive that ends empty is an operation.
        failed_pings: whether a ping that the primary did not accept is an operation.
        batches: a batch counts each `message` by itself, or as one `batch` by its whole size.
        one_region: whether both namespaces, the syphon and the senders are in one region, where
            data transfer is free.
        tier: `basic`, `standard` or `premium`, for both namespaces.
        month_operations: operations that the subscription uses in the month anyway; they decide in
            which price step ours fall. By default the included 13 million are used up.
    """

    empty_polls: bool = True
    failed_pings: bool = True
    batches: Literal["message", "batch"] = "message"
    one_region: bool = False
    tier: str = "standard"
    month_operations: int = 13 * MILLION


@dataclass(frozen=True, slots=True)
class Step:
    """A price that holds for operations from `start` on, until the next step."""

    start: int
    per_million: Decimal


@dataclass(frozen=True, slots=True)
class Tier:
    """The prices of a tier of the service."""

    name: str
    base_per_month: Decimal
    base_per: str
    steps: tuple[Step, ...]

    def cost(self, operations: int, *, after: int = 0) -> Decimal:
        """Return the cost of `operations` if the month has had `after` operations before them."""
        return self._total(after + operations) - self._total(after)

    def _total(self, operations: int) -> Decimal:
        total = Decimal(0)
        for step, following in zip(self.steps, (*self.steps[1:], None), strict=True):
            end = operations if following is None else min(operations, following.start)
            if end > step.start:
                total += (end - step.start) * step.per_million / MILLION
        return total


def hourly_prices(
    operations: Mapping[dt.datetime, int], tier: Tier, *, after: int
) -> dict[dt.datetime, Decimal]:
    """Return the mean price of one operation in each hour, by the month's price steps.

    Args:
        operations: operations of each hour (its start, in UTC).
        tier: the tier whose price steps apply.
        after: operations that each month has had before these.
    """
    prices: dict[dt.datetime, Decimal] = {}
    used: dict[tuple[int, int], int] = {}
    for hour in sorted(operations):
        month, count = (hour.year, hour.month), operations[hour]
        before = used.get(month, after)
        prices[hour] = tier.cost(count, after=before) / count if count else Decimal(0)
        used[month] = before + count
    return prices


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of one date."""

    name: str
    date: dt.date
    currency: str
    source: str
    tiers: Mapping[str, Tier]
    transfer_per_gb: Decimal

    def tier(self, name: str) -> Tier:
        """Return the prices of a tier.

        Raises:
            PriceError: there are none; the message names the tiers with prices.
        """
        try:
            return self.tiers[name]
        except KeyError:
            known = ", ".join(self.tiers)
            raise PriceError(f"{self.name}: no prices for tier {name!r}, only {known}") from None

    def transfer(self, size: int, rules: Rules) -> Decimal:
        """Return the cost of transferring `size` bytes out of a region."""
        return Decimal(0) if rules.one_region else size * self.transfer_per_gb / GB


def parse_prices(data: Mapping[str, Any], name: str) -> PriceList:
    """Check a price list and return it.

    Args:
        data: the content of the file; prices are Decimals, integers or strings, never floats.
        name: the file, for messages.

    Raises:
        PriceError: something is missing, out of order or not a price.
    """
    tiers = _need(data, "tiers", name, Mapping, "a table of at least one tier")
    return PriceList(
        name=name,
        date=_need(data, "date", name, dt.date, "a date such as 2024-06-01"),
        currency=str(_need(data, "currency", name)),
        source=str(data.get("source", "")),
        tiers={key: _parse_tier(key, value, name) for key, value in tiers.items()},
        transfer_per_gb=_price(_need(data, "transfer", name), "per_gb", f"{name}: transfer"),
    )


def _parse_tier(key: str, data: Any, name: str) -> Tier:
    where = f"{name}: tiers.{key}"
    found = _need(data, "steps", where, list, "a list of at least one step")
    steps: list[Step] = []
    reached: Decimal | None = Decimal(0)
    for index, item in enumerate(found):
        place = f"{where}.steps[{index}]"
        start = _price(item, "from", place)
        if reached is None:
            raise PriceError(f"{where}: only the last step may leave out `to`")
        if start > reached:
            raise PriceError(
                f"{where}: no price for operations from {reached} to {start} million (a gap)"
            )
        if start < reached:
            raise PriceError(
                f"{where}: two prices for operations from {start} to {reached} million"
            )
        steps.append(Step(int(start * MILLION), _price(item, "per_million", place)))
        reached = _price(item, "to", place) if "to" in item else None
        if reached is not None and reached <= start:
            raise PriceError(f"{place}: `to` must be above `from`")
    if reached is not None:
        raise PriceError(f"{where}: no price for operations above {reached} million (a gap)")
    base_per = str(data.get("base_per", "subscription"))
    if base_per not in ("subscription", "namespace"):
        raise PriceError(f"{where}.base_per must be subscription or namespace, not {base_per!r}")
    return Tier(key, _price(data, "base_per_month", where), base_per, tuple(steps))


def _need(data: Any, key: str, where: str, kind: type | None = None, what: str = "") -> Any:
    """Return an entry that must be there; where a kind is given, of this kind and not empty."""
    if not isinstance(data, Mapping):
        raise PriceError(f"{where} must be a table with {key}")
    if key not in data:
        raise PriceError(f"{where}: {key} is missing")
    if kind is not None and not (isinstance(data[key], kind) and data[key]):
        raise PriceError(f"{where}: {key} must be {what}, not {data[key]!r}")
    return data[key]


def _price(data: Mapping[str, Any], key: str, where: str) -> Decimal:
    value = _need(data, key, where)
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise PriceError(f"{where}.{key} must be a number, not {value!r}")
    try:
        price = Decimal(value)
    except ArithmeticError:
        raise PriceError(f"{where}.{key} must be a number, not {value!r}") from None
    if not price.is_finite() or price < 0:
        raise PriceError(f"{where}.{key} must be a number of at least 0, not {value!r}")
    return price


def format_amount(amount: Decimal) -> str:
    """Round an amount for display: two decimals, or up to six if it is small."""
    if amount == 0:
        return "0.00"
    if amount >= Decimal("0.1"):
        return f"{amount:,.2f}"
    if amount < Decimal("0.000001"):
        return "<0.000001"
    return f"{amount:.6f}".rstrip("0")


def format_size(count: float) -> str:
    """Return a number of bytes for display: 512 B, 1.5 KB."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TB"
