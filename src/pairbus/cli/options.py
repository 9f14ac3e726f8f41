"""Options that say which pair or ledger a command is about.

A command asks for what it needs::

    @click.command("status")
    @pair_options                # adds --pair --primary --secondary --primary-namespace --ledger
    def status(pair: Pair) -> None:
        admin = pair.secondary_admin()        # a clear error where the secondary is not configured
        ledger = pair.require_ledger()

`@ledger_argument` and `@ledgers_argument` are for commands that need only ledgers.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pairbus.monitoring import configuration
from pairbus.monitoring.endpoints import Pair

F = TypeVar("F", bound=Callable[..., Any])


def resolve_pair(name: str | None = None, **options: Any) -> Pair:
    """Return the pair of the command's options, of the environment and of the file of --config."""
    ctx = click.get_current_context(silent=True)
    file = ctx.meta.get("pairbus.config") if ctx else None
    return configuration.resolve_pair(name, config=file, **options)


def pair_options(command: F) -> F:
    """Give a command the options that say which pair is meant; it gets `pair: Pair`."""

    @click.option("--pair", "pair_name", metavar="NAME", help="A pair of the configuration file.")
    @click.option("--primary", metavar="CS|VAR", help="Primary: connection string or variable.")
    @click.option("--secondary", metavar="CS|VAR", help="Secondary: connection string or variable.")
    @click.option("--primary-namespace", metavar="NAME", help="The primary's name, for addresses.")
    @click.option("--ledger", metavar="FOLDER", help="The ledger's folder.")
    @functools.wraps(command)
    def wrapper(
        *args: Any,
        pair_name: str | None,
        primary: str | None,
        secondary: str | None,
        primary_namespace: str | None,
        ledger: str | None,
        **kwargs: Any,
    ) -> Any:
        pair = resolve_pair(
            pair_name,
            primary=primary,
            secondary=secondary,
            primary_namespace=primary_namespace,
            ledger=ledger,
        )
        return command(*args, pair=pair, **kwargs)

    return wrapper  # type: ignore[return-value]


def ledger_argument(command: F) -> F:
    """Give a command [LEDGER], --ledger and --pair; it gets `ledger: str`."""

    @click.argument("given", metavar="[LEDGER]", required=False)
    @click.option("--ledger", metavar="FOLDER", help="The ledger's folder or URL, as LEDGER.")
    @click.option("--pair", "pair_name", metavar="NAME", help="A pair of the configuration file.")
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
        "--ledger", "more", multiple=True, metavar="FOLDER", help="As LEDGER; may be repeated."
    )
    @functools.wraps(command)
    def wrapper(*args: Any, given: tuple[str, ...], more: tuple[str, ...], **kwargs: Any) -> Any:
        return command(*args, ledgers=[*given, *more], **kwargs)

    return wrapper  # type: ignore[return-value]
