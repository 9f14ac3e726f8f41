"""Options and words that the commands of `pairbus cost` share."""

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.cli.options import AMOUNT, setting

if TYPE_CHECKING:
    from pairbus.pricing import PriceList, Rules

F = TypeVar("F", bound=Callable[..., Any])


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
