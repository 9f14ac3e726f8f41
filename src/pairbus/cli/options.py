"""Options that select the pair or the ledger of a command.

Decorate a command with the options that it needs::

    @click.command("status")
    @pair_options                # adds --pair --primary --secondary --primary-namespace --ledger
    def status(pair: Pair) -> None:
        admin = pair.secondary_admin()        # a clear error where the secondary is not configured
        ledger = pair.require_ledger()

`@ledger_argument` and `@ledgers_argument` are for commands that need only ledgers.
"""

import functools
import math
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pairbus.monitoring import configuration
from pairbus.monitoring.endpoints import Pair

F = TypeVar("F", bound=Callable[..., Any])

PAIR_HELP = "Name of a pair in the configuration file."
ENDPOINT_HELP = "A connection string, or an environment variable that holds one."
NAMESPACE_HELP = "Name of the primary, if its host is an IP address or localhost."
setting = functools.partial(click.option, show_default=True)
"""An option with a default, which its help shows."""


class Number(click.FloatRange):
    """A number within limits; "nan", which no limit excludes, is refused."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Read the number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


NOT_NEGATIVE, POSITIVE = Number(0), Number(0, min_open=True)


class Scaled(click.ParamType):  # type: ignore[type-arg] # generic in newer versions of Click only
    """A number with a unit, such as 2KB, 2h or 50/s."""

    def __init__(
        self,
        name: str,
        units: dict[str, float],
        default: str,
        *,
        is_positive: bool = False,
        most: float = sys.float_info.max,
    ) -> None:
        self.name = name
        self._units = units
        self._default = default
        self._is_positive = is_positive
        self._most = most

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Read the number and multiply it by its unit."""
        if isinstance(value, int | float):
            return float(value)
        number = r"(\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
        match = re.fullmatch(number + r"\s*([A-Za-z/]*)", value.strip())
        unit = (match[2] or self._default).lower() if match else ""
        if match is None or unit not in self._units:
            known = ", ".join(self._units)
            self.fail(f"{value!r} is not a {self.name}: a number and one of {known}", param, ctx)
        scaled = float(match[1]) * self._units[unit]
        if self._is_positive and not scaled:
            self.fail(f"{value!r} is not more than 0", param, ctx)
        if scaled > self._most:
            self.fail(f"{value!r} is too large", param, ctx)
        return scaled


SIZE = Scaled("size", {"b": 1, "kb": 1024, "mb": 1024**2}, "b")
SPANS: dict[str, float] = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
SPAN = Scaled("duration", SPANS, "s")
POSITIVE_SPAN = Scaled("duration", SPANS, "s", is_positive=True)
RATE = Scaled("rate", {"/s": 1, "/m": 1 / 60, "/min": 1 / 60, "/h": 1 / 3600}, "/s")
AMOUNT = Scaled("number", {"": 1, "k": 1e3, "m": 1e6}, "")


def duration_option(name: str, default: str, text: str, *, type: Scaled = SPAN) -> Callable[[F], F]:
    """Return an option for a duration, such as 90s, 10m or 2h."""
    return setting(name, type=type, default=default, help=text)


def resolve_pair(name: str | None = None, **options: Any) -> Pair:
    """Return the pair of the command's options, of the environment and of the file of --config."""
    ctx = click.get_current_context(silent=True)
    file = ctx.meta.get("pairbus.config") if ctx else None
    return configuration.resolve_pair(name, config=file, **options)


def namespace_options(command: F) -> F:
    """Give a command the options that select a pair by its namespaces; it gets `pair: Pair`."""

    @click.option("--pair", "pair_name", metavar="NAME", help=PAIR_HELP)
    @click.option("--primary", metavar="CS|VAR", help=ENDPOINT_HELP)
    @click.option("--secondary", metavar="CS|VAR", help=ENDPOINT_HELP)
    @click.option("--primary-namespace", metavar="NAME", help=NAMESPACE_HELP)
    @functools.wraps(command)
    def wrapper(*args: Any, pair_name: str | None, **kwargs: Any) -> Any:
        names = ("primary", "secondary", "primary_namespace", "ledger")
        given = {name: kwargs.pop(name) for name in names if name in kwargs}
        return command(*args, pair=resolve_pair(pair_name, **given), **kwargs)

    return wrapper  # type: ignore[return-value]


def pair_options(command: F) -> F:
    """Give a command the options that select a pair; it gets `pair: Pair`."""
    ledger = click.option("--ledger", metavar="DIR|URL", help="Directory or URL of the ledger.")
    return namespace_options(ledger(command))


def ledger_argument(command: F) -> F:
    """Give a command [LEDGER], --ledger and --pair; it gets `ledger: str`."""

    @click.argument("given", metavar="[LEDGER]", required=False)
    @click.option("--ledger", metavar="DIR|URL", help="The same as LEDGER.")
    @click.option("--pair", "pair_name", metavar="NAME", help=PAIR_HELP)
    @functools.wraps(command)
    def wrapper(
        *args: Any, given: str | None, ledger: str | None, pair_name: str | None, **kwargs: Any
    ) -> Any:
        chosen = given or ledger or resolve_pair(pair_name).require_ledger()
        return command(*args, ledger=chosen, **kwargs)

    return wrapper  # type: ignore[return-value]


def ledgers_argument(command: F) -> F:
    """Give a command [LEDGER]... and --ledger; it gets `ledgers: list[str]`, empty if none."""

    @click.argument("given", metavar="[LEDGER]...", nargs=-1)
    @click.option(
        "--ledger", "more", multiple=True, metavar="DIR|URL", help="The same as LEDGER; repeatable."
    )
    @functools.wraps(command)
    def wrapper(*args: Any, given: tuple[str, ...], more: tuple[str, ...], **kwargs: Any) -> Any:
        return command(*args, ledgers=[*given, *more], **kwargs)

    return wrapper  # type: ignore[return-value]
