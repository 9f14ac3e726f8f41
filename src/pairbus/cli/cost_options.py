"""Options and words that the commands of `pairbus cost` share."""

import datetime as dt
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.cli.options import setting

if TYPE_CHECKING:
    from pairbus.pricing import PriceList, Rules

F = TypeVar("F", bound=Callable[..., Any])


class Scaled(click.ParamType):  # type: ignore[type-arg] # generic in newer versions of Click only
    """A number with a unit, such as 2KB, 2h or 50/s."""

    def __init__(self, name: str, units: dict[str, float], default: str) -> None:
        self.name = name
        self._units = units
        self._default = default

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Read the number and multiply it by its unit."""
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/]*)", value.strip())
        unit = (match[2] or self._default).lower() if match else ""
        if match is None or unit not in self._units:
            known = ", ".join(self._units)
            self.fail(f"{value!r} is not a {self.name}: a number and one of {known}", param, ctx)
        return float(match[1]) * self._units[unit]


SIZE = Scaled("size", {"b": 1, "kb": 1024, "mb": 1024**2}, "b")
SPAN = Scaled("duration", {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}, "s")
RATE = Scaled("rate", {"/s": 1, "/m": 1 / 60, "/min": 1 / 60, "/h": 1 / 3600}, "/s")
AMOUNT = Scaled("number", {"": 1, "k": 1e3, "m": 1e6}, "")


class Moment(click.ParamType):  # type: ignore[type-arg]
    """A date or time, in UTC unless it says otherwise."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> dt.datetime:
        """Read an ISO date or time."""
        if isinstance(value, dt.datetime):
            return value
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time: 2026-03-01 or 2026-03-01T12:00", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def rule_options(command: F) -> F:
    """Give a command the prices and the switches of the cost model."""
    for option in (
        click.option("--prices", metavar="FILE",
                     help="Price list (TOML); default: the newest list in pairbus."),
        setting("--tier", default="standard", help="Tier of both namespaces."),
        setting("--month-operations", type=AMOUNT, default="13M",
                help="Other operations of the Azure subscription in a month; they decide the "
                "price step."),
        click.option("--one-region", is_flag=True,
                     help="Both namespaces are in one region: no charge for data transfer."),
        setting("--empty-polls/--no-empty-polls", default=True,
                help="Uncertain billing rule: charge receives that return no message."),
        setting("--failed-pings/--no-failed-pings", default=True,
                help="Uncertain billing rule: charge pings that the primary did not accept."),
        setting("--batches", type=click.Choice(["message", "batch"]), default="message",
                help="Uncertain billing rule: charge a batch by message or as one operation."),
    ):  # fmt: skip
        command = option(command)
    return command


def read_prices(values: dict[str, Any]) -> "tuple[PriceList, Rules]":
    """Return the price list and the switches of a command's options.

    Raises:
        PriceError: the list cannot be used, or has no such tier.
    """
    from pairbus.pricing import Rules
    from pairbus.reports.price_lists import load_prices

    prices = load_prices(values["prices"])
    rules = Rules(
        tier=values["tier"].lower(),
        month_operations=int(values["month_operations"]),
        one_region=values["one_region"],
        empty_polls=values["empty_polls"],
        failed_pings=values["failed_pings"],
        batches=values["batches"],
    )
    prices.tier(rules.tier)
    return prices, rules
