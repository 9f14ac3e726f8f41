"""`pairbus dashboard`: the live page."""

import contextlib

import click

from pairbus.cli.errors import ExitCode, fail, require
from pairbus.cli.options import SPANS, Scaled, duration_option, pair_options, setting
from pairbus.cli.output import say
from pairbus.monitoring.endpoints import Pair
from pairbus.names import join_host


@click.command("dashboard")
@pair_options
@setting("--host", default="127.0.0.1", help="Address to listen on.")
@setting("--port", type=click.IntRange(0, 65535), default=8666, help="Port; 0 selects a free one.")
@click.option(
    "--token",
    envvar="PAIRBUS_DASHBOARD_TOKEN",
    help="Token for pause and resume, and for reading if the address is not loopback "
    "[env: PAIRBUS_DASHBOARD_TOKEN; default on loopback: a random token].",
)
@click.option("--name", "names", multiple=True, metavar="HOST",
              help="A host name under which browsers reach the page; repeatable.")  # fmt: skip
@duration_option(
    "--refresh",
    "5s",
    "Time between two reads of the secondary, which are charged; four times as "
    "long while the backlog is empty and nothing is wrong.",
    type=Scaled("duration", SPANS, "s", is_positive=True, most=86_400),
)
def command(
    pair: Pair, host: str, port: int, token: str | None, names: tuple[str, ...], refresh: float
) -> None:
    """Serve the live page.

    The page shows the failed-over entities with time and reason, the backlog, the syphon (with
    pause and resume), events and cost. Every page has a .json version; /metrics is for Prometheus.

    It listens on loopback unless --host is given. Any other address requires a token.

    \b
    Examples:
      pairbus dashboard --ledger ./ledger
      PAIRBUS_DASHBOARD_TOKEN=… pairbus dashboard --host 0.0.0.0
    """
    for module in ("starlette", "uvicorn", "jinja2", "pyarrow"):
        require(module, "web")
    from pairbus.dashboard.guard import is_loopback
    from pairbus.dashboard.serve import prepare

    if not (pair.ledger or pair.secondary):
        fail(
            "the live page needs a ledger or a secondary namespace",
            "--ledger DIR, PAIRBUS_LEDGER or pairbus.toml",
            code=ExitCode.USAGE,
        )
    if not is_loopback(host) and not token:
        fail(
            f"to listen on {host}, the live page needs a token",
            "export PAIRBUS_DASHBOARD_TOKEN=$(openssl rand -hex 16)",
            code=ExitCode.USAGE,
        )
    try:
        page, server, listener = prepare(
            pair, host=host, port=port, token=token, hosts=names, refresh=refresh
        )
    except ValueError as exc:
        fail(str(exc), code=ExitCode.USAGE)
    except OSError as exc:
        reason = str(exc.strerror).partition(" (while ")[0]  # Python adds the address
        fail(f"cannot listen on {join_host(host, port)}: {reason}", "another --host or --port")
    say(f"Live page: {page.url}")
    if token is None:
        say(f"To pause and resume, open: {page.link}")
    say("Press Ctrl-C to stop.")
    with contextlib.suppress(KeyboardInterrupt):  # the documented way to end it
        server.run(sockets=[listener])
