"""`pairbus syphon pause`, `resume` and `limit`: control a running syphon by its state directory."""

import click

from pairbus.cli.errors import ExitCode, fail
from pairbus.cli.options import NOT_NEGATIVE, pair_options
from pairbus.cli.output import say
from pairbus.cli.syphon_options import checkpoint_option, find_state
from pairbus.monitoring.endpoints import Pair


@click.command("pause")
@pair_options
@checkpoint_option
def pause(pair: Pair, checkpoint: str | None, state: str | None) -> None:
    """Pause the syphon after the messages in flight.

    It stays paused across restarts.

    \b
    Example:
      pairbus syphon pause --pair orders
    """
    find_state(pair, checkpoint, state).change_controls(paused=True)
    say("paused after the messages in flight; continue with `pairbus syphon resume`")


@click.command("resume")
@pair_options
@checkpoint_option
def resume(pair: Pair, checkpoint: str | None, state: str | None) -> None:
    """Continue a paused syphon.

    \b
    Example:
      pairbus syphon resume --pair orders
    """
    find_state(pair, checkpoint, state).change_controls(paused=False)
    say("resumed")


@click.command("limit", short_help="Limit the rate of a running syphon.")
@pair_options
@checkpoint_option
@click.option(
    "--max-messages-per-second", type=NOT_NEGATIVE, metavar="N", help="Maximum; 0: no limit."
)
@click.option(
    "--max-bytes-per-second", type=NOT_NEGATIVE, metavar="N", help="Maximum; 0: no limit."
)
def limit(pair: Pair, checkpoint: str | None, state: str | None, **limits: float | None) -> None:
    """Limit the rate of a running syphon, to protect a primary that has just recovered.

    \b
    Example:
      pairbus syphon limit --pair orders --max-messages-per-second 500
    """
    changes = {name: value or None for name, value in limits.items() if value is not None}
    if not changes:
        fail("no limit is given", "--max-messages-per-second N", code=ExitCode.USAGE)
    control = find_state(pair, checkpoint, state).change_controls(**changes)
    say(
        f"limits: {_number(control.max_messages_per_second)} messages/s, "
        f"{_number(control.max_bytes_per_second)} bytes/s"
    )


def _number(limit: float | None) -> str:
    return f"{limit:,.10g}" if limit else "no limit of"
