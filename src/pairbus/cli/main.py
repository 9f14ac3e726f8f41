"""The command line: `pairbus NOUN VERB`.

A noun is a module `pairbus/cli/<noun>.py` that exposes `command`: a `click.Command`, or a
`click.Group` of verbs. It is imported when it is used, so that `pairbus broker run` never waits for
Spark; import heavy libraries inside the functions. A new noun gets a line in `NOUNS`.

Errors are one line on the standard error and an exit code (`pairbus.cli.errors.ExitCode`); with
`--debug`, which may be anywhere on the line, a traceback too.
"""

import difflib
import importlib
import os
import select
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from pairbus import __version__
from pairbus.cli.errors import ExitCode, UserError, explain, missing_extra
from pairbus.monitoring.formatting import mask, one_line

NOUNS = {
    "account": "Account for every message of an outage, and report the cost.",
    "backlog": "List, create, peek, resubmit and delete backlog queues.",
    "bench": "Measure sending, failing over and draining on this machine.",
    "broker": "Run the embedded Service Bus broker.",
    "check": "Check a pair against thresholds, for monitoring systems.",
    "completion": "Print the shell completion for bash, zsh or fish.",
    "cost": "Estimate and report the cost of pairing.",
    "dashboard": "Serve the live page.",
    "demo": "Run an outage on this machine, and show that no message is lost.",
    "drill": "Rehearse an outage on your own pair, and get a verdict.",
    "ledger": "Compact a ledger, or show its contents.",
    "pair": "Pair two namespaces, and show their status.",
    "reconcile": "Account for every message that went through the backlog.",
    "spark": "Prepare jobs for spark-submit.",
    "syphon": "Forward the backlog to its destinations, and control the forwarding.",
}


def load(noun: str) -> click.Command | None:
    """Import one noun's module; return its command, or None if there is no such noun."""
    if noun not in NOUNS:
        return None
    command: click.Command = importlib.import_module(f"pairbus.cli.{noun}").command
    return command


class Root(click.Group):
    """A group whose commands are modules, loaded when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the nouns."""
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one noun's module and return its command."""
        return load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the noun; for a misspelt one name the nearest (click looks at loaded ones only)."""
        name = args[0]
        nouns = self.list_commands(ctx)
        if name not in nouns and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, nouns, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the nouns without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(noun, NOUNS[noun]) for noun in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Click would end silently with 1 at a broken pipe of any kind."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            if not _is_output_closed():
                raise UserError(one_line(exc), "check the network") from exc
            # The reader of our output has closed it (`| head`): there is nothing to report.
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - flushed at exit
            return ExitCode.OK

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command line, and end the process with a documented exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in arguments
        try:
            result = super().main(
                hoisted(arguments),
                prog_name or "pairbus",
                complete_var,
                standalone_mode=False,
                **extra,
            )
            code = result if isinstance(result, int) else ExitCode.OK
        except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001 - the boundary: every error becomes one line
            code = report(exc, arguments, debug=debug)
        sys.exit(int(code))


def hoisted(arguments: list[str]) -> list[str]:
    """Return the arguments with --debug first, so that it may be anywhere on the line."""
    rest = [argument for argument in arguments if argument != "--debug"]
    return rest if len(rest) == len(arguments) else ["--debug", *rest]


def command_path(arguments: Sequence[str]) -> str:
    """Return the command that the arguments name, as `pairbus NOUN VERB`."""
    command: click.Command = cli
    path = ["pairbus"]
    for argument in arguments:
        if not isinstance(command, click.Group):
            break
        if (found := command.get_command(click.Context(command), argument)) is not None:
            command = found
            path.append(argument)
    return " ".join(path)


def report(exc: BaseException, arguments: Sequence[str] = (), *, debug: bool) -> int:
    """Print an error in one line; return its exit code."""
    if debug and not isinstance(exc, click.exceptions.Exit | click.Abort | KeyboardInterrupt):
        click.echo(mask("".join(traceback.format_exception(exc))), err=True, nl=False)
    if (missing := missing_extra(exc)) is not None:
        exc = missing
    match exc:
        case click.exceptions.Exit():
            return exc.exit_code
        case click.Abort() | KeyboardInterrupt():
            click.echo("pairbus: interrupted", err=True)
            return ExitCode.INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            click.echo(exc.format_message(), err=True)
            return ExitCode.USAGE
        case click.UsageError():
            # click's parser reports an option without its value without a context.
            where = exc.ctx.command_path if exc.ctx else command_path(arguments)
            text = mask(" ".join(exc.format_message().split()))  # click lists choices in lines
            click.echo(f"{where}: {text} (see {where} --help)", err=True)
            return ExitCode.USAGE
        case click.ClickException():
            click.echo(f"pairbus: {mask(exc.format_message())}", err=True)
            return exc.exit_code if exc.exit_code != 1 else ExitCode.ERROR
    if (known := explain(exc)) is not None:
        code, hint = known
        click.echo(f"pairbus: {one_line(exc)}" + (f". Try: {hint}" if hint else ""), err=True)
        return code
    click.echo(
        f"pairbus: unexpected {type(exc).__name__}: {one_line(exc)} "
        "(pairbus --debug … shows the traceback)",
        err=True,
    )
    return ExitCode.BUG


def _is_output_closed() -> bool:
    """Whether the reader of our output has closed it; a broken pipe may also be a connection."""
    output = select.poll()
    output.register(1, 0)
    # On Linux a closed pipe reports an error, a closed socket a hang-up.
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", help="Configuration file (default: pairbus.toml).")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.version_option(__version__, prog_name="pairbus")
@click.pass_context
def cli(ctx: click.Context, config: str | None, debug: bool) -> None:
    """Keep sending to Azure Service Bus during an outage.

    Pairs are configured in one TOML file or in environment variables (PAIRBUS_PRIMARY,
    PAIRBUS_SECONDARY, PAIRBUS_PRIMARY_NAMESPACE, PAIRBUS_BACKLOG_QUEUE_COUNT, PAIRBUS_LEDGER,
    PAIRBUS_CHECKPOINT, PAIRBUS_STATE).

    \b
    Exit codes:
      0   success; `check`, `drill`: no finding
      1   the command ran and found a problem (lost or dead-lettered messages);
          `check`, `drill`: a warning
      2   `check`, `drill`: critical
      3   the command failed; the message gives the reason (`check`: unknown)
      64  the command line or the configuration file is invalid
      69  a package is missing; the message has the command that installs it
      70  unexpected error, a bug; --debug shows the traceback
      130 interrupted

    \b
    Example:
      pairbus demo --fast
    """
    ctx.meta["pairbus.config"] = config
    ctx.meta["pairbus.debug"] = debug


def run() -> NoReturn:
    """Run the command line of this process."""
    cli.main()
