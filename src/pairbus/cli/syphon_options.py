"""The options that the commands of `pairbus syphon` share, and the objects built from them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.cli.errors import ExitCode, fail
from pairbus.monitoring.endpoints import Endpoint, Pair

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


def build_options(
    pair: Pair, checkpoint: str | None, count: int | None, settings: dict[str, Any]
) -> "SyphonOptions":
    """Return the options of a syphon of this pair."""
    from pairbus.options import SyphonOptions

    secondary = pair.require_secondary()
    target = settings["target"]
    is_gone = target is not None and pair.primary is None
    primary = Endpoint("") if is_gone else pair.require_primary()
    if target == "secondary":
        target = secondary.access
    return SyphonOptions(
        primary=primary.access,
        target=target,
        target_host=secondary.host if settings["target"] == "secondary" else None,
        destination_map=dict(_mapping(one) for one in settings["maps"]),
        secondary=secondary.access,
        primary_host=None if is_gone else primary.access_host,
        secondary_host=secondary.access_host,
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


def find_state(pair: Pair, checkpoint: str | None, state: str | None) -> "StateDirectory":
    """Return the state directory of a syphon of this pair; fail if there is none."""
    from pairbus.syphon.object_files import is_url
    from pairbus.syphon.state import StateDirectory

    place = state or checkpoint or pair.checkpoint
    if place and is_url(place):
        return StateDirectory(place)
    if not place:
        from pairbus.syphon.setup import default_checkpoint

        place = default_checkpoint(pair.primary_namespace, pair.require_secondary().host)
    path = Path(place.removeprefix("file://")).expanduser()
    if not path.is_dir():
        hint = "start one with `pairbus syphon run`, or give the --checkpoint DIR that it printed"
        fail(f"there is no syphon at {path}", hint)
    return StateDirectory(path)
