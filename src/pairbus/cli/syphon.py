"""`pairbus syphon`: forward the backlog, watch, pause, resume and limit it."""

import contextlib
import datetime as dt
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.cli.errors import ExitCode, fail, require
from pairbus.cli.options import pair_options
from pairbus.cli.output import emit, json_option, say
from pairbus.cli.syphon_progress import RunProgress, shown, summary
from pairbus.cli.tables import Column, Table, cell
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.monitoring.formatting import duration
from pairbus.pricing import format_amount

if TYPE_CHECKING:
    from pairbus.options import SyphonOptions
    from pairbus.syphon.state import StateDirectory

F = TypeVar("F", bound=Callable[..., Any])


def checkpoint_option(command: F) -> F:
    """Give a command the options --checkpoint and --state; it gets `checkpoint` and `state`."""
    checkpoint = click.option(
        "--checkpoint", metavar="DIR", help="Directory of the syphon's checkpoint and state."
    )
    state = click.option(
        "--state",
        metavar="DIR|URL",
        envvar="PAIRBUS_STATE",
        help="Directory or object store URL of the syphon's state, if not in --checkpoint.",
    )
    return checkpoint(state(command))


@click.group()
def group() -> None:
    """Forward the backlog to its destinations: run, watch, pause, resume.

    The syphon forwards the messages in the backlog queues to their destinations. It runs on Spark,
    in its own process or on a cluster.

    \b
    Example:
      pairbus syphon run --pair orders --until-empty
    """


@group.command("run", short_help="Forward the backlog to its destinations.")
@json_option
@pair_options
@checkpoint_option
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@click.option("--ca-file", metavar="FILE", help="PEM file of the certificate authorities to trust.")
@click.option("--queues", "count", type=click.IntRange(1), help="Number of backlog queues.")
@click.option("--until-empty", is_flag=True, help="End when the backlog is empty.")
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("--snapshot", is_flag=True, help="End when all messages present at start are done.")
@click.option("--max-duration", type=float, metavar="SECONDS", help="End after this time.")
@click.option("--max-messages-per-second", type=float, metavar="N", help="Limit of the rate.")
@click.option("--max-bytes-per-second", type=float, metavar="N", help="Limit of the rate.")
@click.option(
    "--credits-per-second",
    type=click.FloatRange(0),
    default=1000.0,
    show_default=True,
    metavar="N",
    help="Operations per second that each namespace allows; 0: no limit (Premium).",
)
@click.option(
    "--live-traffic-share",
    type=click.FloatRange(0, 1, max_open=True),
    default=1 / 3,
    show_default="a third",
    metavar="SHARE",
    help="Share of these operations that is reserved for live traffic.",
)
@click.option(
    "--missing-destination",
    type=click.Choice(["wait", "dead-letter"]),
    default="wait",
    show_default=True,
    help="What to do with messages whose destination does not exist.",
)
@click.option(
    "--missing-destination-timeout",
    type=float,
    default=86400.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for such a destination before its messages are dead-lettered.",
)
@click.option(
    "--max-messages-per-trigger",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of messages of one queue in a micro-batch.",
)
@click.option(
    "--ttl-policy",
    type=click.Choice(["full", "deduct"]),
    default="full",
    show_default=True,
    help="Restore the time to live in full, or minus the time in the backlog.",
)
@click.option(
    "--long-poll",
    type=float,
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one receive waits on an empty queue.",
)
@click.option(
    "--transform",
    metavar="MODULE:FUNCTION",
    help="A function that takes and returns a DataFrame, applied between restore and delivery.",
)
@click.option(
    "--to",
    "target",
    metavar="CS|VAR|secondary",
    help="Deliver to this namespace instead of a lost primary; requires a ledger.",
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="OLD=NEW",
    help="Deliver messages for the entity OLD to the entity NEW; repeatable.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Forward nothing; show the messages per destination and the cost.",
)
@click.option(
    "--prices",
    metavar="FILE",
    help="For --dry-run: price list (TOML); default: the newest list in pairbus.",
)
@click.option(
    "--tier", default="standard", show_default=True, help="For --dry-run: tier of both namespaces."
)
@click.option(
    "--one-region", is_flag=True, help="For --dry-run: both namespaces are in one region."
)
def run(
    pair: Pair,
    checkpoint: str | None,
    count: int | None,
    dry_run: bool,
    **settings: Any,
) -> int:
    """Forward the backlog to its destinations, until stopped or until a given limit is reached.

    With --to, messages go to entities of the same name in another namespace, which may be the
    secondary. A message that has a receipt in the ledger is not sent again. `pairbus ledger
    in-doubt` lists messages that the former target may have received, too.

    Give connection strings in PAIRBUS_PRIMARY and PAIRBUS_SECONDARY, because other users can see a
    command line. After Ctrl-C or SIGTERM the syphon delivers and settles the messages in flight,
    and ends. The exit code is 1 if messages were dead-lettered in this run.

    \b
    Example:
      pairbus syphon run --pair orders --until-empty
    """
    require("pyarrow", "spark")
    require("pyspark", "spark")
    from pairbus.exceptions import SyphonError
    from pairbus.spark.session import SparkUnavailableError

    try:
        if dry_run:
            return _dry_run(_options(pair, checkpoint, count, settings), settings)
        return _run(_options(pair, checkpoint, count, settings), settings)
    except (SyphonError, SparkUnavailableError) as exc:
        fail(str(exc).splitlines()[0])
    except ValueError as exc:
        fail(str(exc).splitlines()[0], code=ExitCode.USAGE)


def _options(
    pair: Pair, checkpoint: str | None, count: int | None, settings: dict[str, Any]
) -> "SyphonOptions":
    from pairbus.options import SyphonOptions

    secondary = pair.require_secondary()
    target = settings["target"]
    is_gone = target is not None and pair.primary is None
    primary = Endpoint("") if is_gone else pair.require_primary()
    if target == "secondary":
        target = secondary.value if secondary.is_connection_string else secondary.credential
    return SyphonOptions(
        primary=primary.value if primary.is_connection_string else primary.credential,
        target=target,
        target_host=secondary.host if settings["target"] == "secondary" else None,
        destination_map=dict(_mapping(one) for one in settings["maps"]),
        secondary=secondary.value if secondary.is_connection_string else secondary.credential,
        primary_host=None if is_gone or primary.is_connection_string else primary.host,
        secondary_host=None if secondary.is_connection_string else secondary.host,
        primary_namespace=pair.primary_namespace,
        backlog_queue_count=count or pair.backlog_queue_count,
        checkpoint=checkpoint or pair.checkpoint,
        ledger=pair.ledger,
        credits_per_second=settings["credits_per_second"] or None,
        live_traffic_share=settings["live_traffic_share"],
        **{
            name: settings[name]
            for name in (
                "master", "ca_file", "state", "ttl_policy", "long_poll", "transform",
                "max_messages_per_trigger", "missing_destination", "missing_destination_timeout",
                "max_messages_per_second", "max_bytes_per_second",
            )
            if settings[name] is not None
        },
    )  # fmt: skip


def _mapping(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    if not old.strip() or not new.strip():
        fail(f"--map {text}: must be OLD=NEW", code=ExitCode.USAGE)
    return old.strip(), new.strip()


def _run(options: "SyphonOptions", settings: dict[str, Any]) -> int:
    from pairbus.spark.syphon import Bounds, start_syphon

    bounds = Bounds(
        until_empty=settings["until_empty"],
        max_messages=settings["max_messages"],
        snapshot=settings["snapshot"],
        max_duration=settings["max_duration"],
    )
    asked = _Signals()
    with asked.before_spark():
        say("starting Spark …")
        handle = start_syphon(options, bounds=bounds)
    asked.install()  # after Spark, which installs a handler of its own
    say(f"syphon runs; checkpoint {handle.checkpoint}")
    progress = RunProgress(handle)
    with shown(progress) as show:
        while not handle.wait(0.25):
            show()
            if asked.signal:
                say("finishing the messages in flight …")
                handle.stop()
    status = progress.status()
    emit(status, summary(status))
    handle.wait(0)
    if options.target is not None and options.ledger is not None:
        _say_in_doubt(options.ledger)
    for reason, number in status["dead_lettered"].items():
        say(f"dead-lettered: {number:,} ({reason}); pairbus backlog peek QUEUE --dead-letters")
    return ExitCode.NEGATIVE if status["dead_lettered"] else ExitCode.OK


def _say_in_doubt(ledger: str) -> None:
    from pairbus.ledger.receipt_index import list_in_doubt

    rows = list_in_doubt(ledger)
    if rows:
        ids = ", ".join(str(row["message_id"]) for row in rows[:5]) + (" …" if rows[5:] else "")
        say(f"in doubt: {len(rows):,} ({ids}); pairbus ledger in-doubt lists them")


class _Signals:
    """Notes SIGTERM and Ctrl-C, so that the run ends between two batches."""

    def __init__(self) -> None:
        self.signal = 0

    def _note(self, number: int, _frame: Any) -> None:
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C ends it immediately
        self.signal = number

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    @contextlib.contextmanager
    def before_spark(self) -> Iterator[None]:
        """End the process on SIGTERM while Spark starts: there is nothing to finish."""
        old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, old)


def _dry_run(options: "SyphonOptions", settings: dict[str, Any]) -> int:
    from pairbus.pricing import Rules
    from pairbus.reports.dry_run import dry_run
    from pairbus.reports.price_lists import load_prices

    rules = Rules(tier=settings["tier"].lower(), one_region=settings["one_region"])
    prices = load_prices(settings["prices"])
    result = dry_run(options, prices=prices, rules=rules)
    table = Table(
        *("destination", "verdict", "reason"),
        *(Column(name, right=True) for name in ("messages", "bytes")),
        title="Messages per destination",
        empty="the backlog is empty",
    )
    for row in result["rows"]:
        table.add(row["destination"], row["verdict"], row["reason"], row["messages"], row["bytes"])
    costs = result["operations"]
    line = (
        f"{result['messages']:,} messages; billable operations: "
        f"{costs['receive_backlog']:,} to receive, {costs['send_primary']:,} to send, "
        f"{costs['settle']:,} to settle, {costs['total']:,} in all"
    )
    cost = result["cost"]
    price = (
        f"{format_amount(cost['total'])} {cost['currency']}: "
        f"{format_amount(cost['operations'])} for operations, "
        f"{format_amount(cost['transfer'])} for transfer between regions "
        f"(prices of {cost['prices_of']}, {cost['tier']} tier)"
    )
    emit(result, [table, line, price])
    return ExitCode.OK


# ------------------------------------------------------------------ status and controls


def _state(pair: Pair, checkpoint: str | None, state: str | None) -> "StateDirectory":
    from pairbus.syphon.object_files import is_url
    from pairbus.syphon.state import StateDirectory

    place = state or checkpoint or pair.checkpoint
    if place and is_url(place):
        return StateDirectory(place)
    if not place:
        from pairbus.syphon.setup import default_checkpoint

        place = default_checkpoint(pair.primary_namespace, pair.require_secondary().host)
    path = Path(place).expanduser()
    if not path.is_dir():
        fail(f"there is no syphon at {path}", "--checkpoint DIR, as printed by `syphon run`")
    return StateDirectory(path)


def _is_alive(status: dict[str, Any]) -> bool:
    import socket

    if status.get("host") != socket.gethostname():
        updated = dt.datetime.fromisoformat(status["updated_at"])
        return (dt.datetime.now(dt.UTC) - updated).total_seconds() < 120
    try:
        os.kill(int(status["pid"]), 0)
    except (OSError, ValueError):
        return False
    return True


@group.command("status")
@json_option
@pair_options
@checkpoint_option
def status_(pair: Pair, checkpoint: str | None, state: str | None) -> int:
    """Show the state and the progress of the syphon.

    \b
    Example:
      pairbus syphon status --pair orders --json
    """
    directory = _state(pair, checkpoint, state)
    status = directory.read("status.json")
    if not status:
        fail(f"the syphon at {directory.path} has not reported yet")
    if status["state"] != "stopped" and not _is_alive(status):
        status["state"], status["stalled"] = "stopped", "its process does not exist any more"
    from pairbus.monitoring.snapshot import read_syphon

    now = dt.datetime.now(dt.UTC)
    seen = read_syphon({**status, "updated_at": now.isoformat()}, now)
    colours = {
        "starting": "cyan", "running": "green", "idle": "green", "paused": "yellow",
        "stalled": "red",
    }  # fmt: skip
    table = Table("what", "value", title=f"Syphon {status['id']}")
    state_text = status["state"] + (f": {seen['problem']}" if status["stalled"] else "")
    table.add("state", cell(state_text, colours.get(status["state"], "")))
    for name in ("primary", "secondary"):
        table.add(name, status[name])
    table.add("forwarded in all runs", status["forwarded"])
    table.add("remaining", status["remaining"])
    table.add("in flight", status["in_flight"])
    table.add("oldest", duration(status["oldest_age"]))
    if status["state"] == "running" and status["rate"]:
        table.add("rate per second", status["rate"])
        table.add("time left", duration(status["eta"]))
    if status.get("allowed_rate") is not None:
        table.add("allowed per second", status["allowed_rate"])
    if status.get("throttled_by"):
        table.add("throttled by", cell(f"the {status['throttled_by']}", "yellow"))
    table.add("last progress", status["last_progress"])
    for reason, number in status["dead_lettered"].items():
        table.add("dead-lettered", cell(f"{number:,}: {reason}", "red"))
    for wait in seen["waits"]:
        table.add("waiting", cell(wait, "yellow"))
    for queue in status.get("doubtful", []):
        text = f"{queue}: waits until the locks of a lost reader expire, to keep the order"
        table.add("waiting", cell(text, "yellow"))
    queues = Table("queue", Column("active", right=True), Column("dead letters", right=True),
                   title="Backlog queues")  # fmt: skip
    for queue in status["queues"]:
        queues.add(queue["path"], queue["active"], queue["dead_letters"])
    emit(status, [table, queues])
    return ExitCode.NEGATIVE if status["state"] == "stalled" else ExitCode.OK


@group.command("pause")
@pair_options
@checkpoint_option
def pause(pair: Pair, checkpoint: str | None, state: str | None) -> None:
    """Pause the syphon after the messages in flight.

    It stays paused across restarts.

    \b
    Example:
      pairbus syphon pause --pair orders
    """
    _state(pair, checkpoint, state).change_controls(paused=True)
    say("paused; continue with `pairbus syphon resume`")


@group.command("resume")
@pair_options
@checkpoint_option
def resume(pair: Pair, checkpoint: str | None, state: str | None) -> None:
    """Continue a paused syphon.

    \b
    Example:
      pairbus syphon resume --pair orders
    """
    _state(pair, checkpoint, state).change_controls(paused=False)
    say("resumed")


@group.command("limit", short_help="Limit the rate of a running syphon.")
@pair_options
@checkpoint_option
@click.option("--max-messages-per-second", type=float, metavar="N", help="0: no limit.")
@click.option("--max-bytes-per-second", type=float, metavar="N", help="0: no limit.")
def limit(pair: Pair, checkpoint: str | None, state: str | None, **limits: float | None) -> None:
    """Limit the rate of a running syphon, to protect a primary that has just recovered.

    \b
    Example:
      pairbus syphon limit --pair orders --max-messages-per-second 500
    """
    changes = {name: value or None for name, value in limits.items() if value is not None}
    if not changes:
        fail("no limit is given", "--max-messages-per-second N", code=ExitCode.USAGE)
    control = _state(pair, checkpoint, state).change_controls(**changes)
    say(
        f"limits: {control.max_messages_per_second or 'no limit of'} messages/s, "
        f"{control.max_bytes_per_second or 'no limit of'} bytes/s"
    )
