"""`pairbus broker run`: a Service Bus namespace on this machine."""

import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Literal

import click

from pairbus.cli.errors import ExitCode, fail
from pairbus.cli.options import NOT_NEGATIVE, setting
from pairbus.monitoring.formatting import mask

ENDS = frozenset({signal.SIGTERM, signal.SIGINT})


@click.group("broker")
def command() -> None:
    """Run the embedded Service Bus broker.

    A Service Bus namespace in one process, for development and tests with the official SDK. It is
    not for production.

    \b
    Example:
      pairbus broker run --namespace contoso --port 5672
    """


@command.command("run")
@setting("--namespace", default="contoso", help="The namespace's name.")
@setting(
    "--port",
    type=click.IntRange(0, 65535),
    default=5672,
    help="The port for AMQP, HTTP and TLS; 0 selects a free one.",
)
@setting("--host", default="127.0.0.1", help="The address to bind.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory in which messages are stored.",
)
@click.option("--memory", is_flag=True, help="Store nothing on disk (the default without --data).")
@click.option(
    "--entities",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Entities to create: a file in the format of the official emulator's Config.json.",
)
@setting(
    "--durability",
    type=click.Choice(["normal", "full"]),
    default="normal",
    help="normal: acknowledged messages survive a crash of the process; full: also a power loss.",
)
@click.option(
    "--key",
    envvar="PAIRBUS_BROKER_KEY",
    show_envvar=True,
    help="The shared access key; required if --host is not a loopback address.",
)
@setting(
    "--key-name", default="RootManageSharedAccessKey", help="The name of the shared access key."
)
@click.option(
    "--control-port",
    type=click.IntRange(0, 65535),
    help="A second port for the control API, which injected faults do not affect.",
)
@click.option(
    "--allow-origin",
    "allowed_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Origin of web pages that may connect over WebSocket or use the administration API, "
    "such as https://app.example; repeatable.",
)
@click.option(
    "--tier",
    type=click.Choice(["standard", "premium"]),
    help="The tier whose limits apply. Default: the tier in the --entities file, else the "
    "environment variable PAIRBUS_BROKER_TIER, else standard.",
)
@click.option(
    "--credits-per-second",
    type=click.IntRange(0),
    help="Throttle operations above this rate; 0: never. Default: 1000 on standard.",
)
@click.option(
    "--idle-link-timeout",
    type=NOT_NEGATIVE,
    help="Seconds until an idle link is detached; 0: never. Default: 600.",
)
@click.option(
    "--idle-connection-timeout",
    type=NOT_NEGATIVE,
    help="Seconds until a connection without links is closed; 0: never. Default: 60.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the ready line as JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Log to the standard error.")
def run_command(
    namespace: str,
    port: int,
    host: str,
    data: Path | None,
    memory: bool,
    entities: Path | None,
    durability: Literal["normal", "full"],
    key: str | None,
    key_name: str,
    control_port: int | None,
    allowed_origins: tuple[str, ...],
    tier: Literal["standard", "premium"] | None,
    credits_per_second: int | None,
    idle_link_timeout: float | None,
    idle_connection_timeout: float | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Run a namespace until SIGTERM or Ctrl-C.

    When the namespace is ready, the first line on the standard output is `ready:` and its
    connection string; the value of --key is masked there, but not with --json.

    \b
    Examples:
      pairbus broker run --namespace contoso --entities Config.json
      pairbus broker run --namespace contoso-dr --port 5673 --data ./contoso-dr
      pairbus broker run --port 0 --memory --json
    """
    if memory and data is not None:
        fail("--memory and --data exclude each other", "give only one", code=ExitCode.USAGE)
    from pairbus.broker import run
    from pairbus.demo.broker_process import BrokerReady

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        handle = run(
            namespace,
            port=port,
            host=host,
            data=data,
            durability=durability,
            entities=entities,
            key=key,
            key_name=key_name,
            control_port=control_port,
            allowed_origins=allowed_origins,
            tier=tier,
            credits_per_second=credits_per_second,
            idle_link_timeout=idle_link_timeout,
            idle_connection_timeout=idle_connection_timeout,
        )
        _ = handle.settings.effective_tier  # raises for a wrong tier in the environment
    except ValueError as exc:
        fail(str(exc), code=ExitCode.USAGE)
    with _blocked(ENDS), handle as broker:  # before a thread starts: only the wait below sees them
        # The objects that a broker keeps (messages, locks) are no garbage, and a collection
        # after every 700 new objects takes a fifth of its time. Nothing else runs here.
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        if as_json:
            ready = BrokerReady(
                namespace=broker.name,
                connection_string=broker.connection_string,
                host=broker.host,
                port=broker.port,
                control=broker.control_address,
                certificate=str(broker.certificate),
                pid=os.getpid(),
            )
            click.echo(json.dumps(ready.to_json()))
        else:
            shown = broker.connection_string
            click.echo(f"ready: {shown if key is None else mask(shown)}")
        sys.stdout.flush()
        fatal: list[Exception] = []

        def end(problem: Exception) -> None:
            fatal.append(problem)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

        broker.on_fatal = end
        signal.sigwait(ENDS)
    if fatal:
        fail(f"the store cannot be read: {fatal[0]}", "check the disk and the data directory")


@command.command("salvage")
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
def salvage_command(data: Path) -> None:
    """Repair a data directory with a damaged write-ahead log.

    The broker does not start with such a directory, because acknowledged messages would be missing.
    This command truncates the log after its last intact transaction, and keeps a copy of the
    damaged file. If you have a backup of the directory, restore that instead.

    \b
    Example:
      pairbus broker salvage ./contoso
    """
    from pairbus.broker.store.salvage import SUFFIX, salvage

    damage = salvage(data)
    if damage is None:
        click.echo(f"{data}: no damage found")
    else:
        click.echo(f"{damage} were cut off. The damaged file is kept as {damage.path.name}{SUFFIX}")


@contextlib.contextmanager
def _blocked(signals: frozenset[signal.Signals]) -> Iterator[None]:
    """Block signals, also for threads that start in the block, and drop those that come.

    They stay blocked if the block ends in order: the process ends, and nothing may interrupt that.
    """
    former = {number: signal.signal(number, _ignore) for number in signals}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in former.items():
            signal.signal(number, handler)
        raise


def _ignore(number: int, frame: FrameType | None) -> None:
    """Replace the default action, which would end the process before the broker has stopped."""
