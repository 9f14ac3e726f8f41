"""Errors of the command line: one line, a documented exit code, and what to try.

`fail("what, which entity", "what to try")` ends a command with exit code 3; raise `UserError` for
the same. `require("pyarrow", "ledger")` imports a library of an extra, and answers with the exact
`pip install` line where it is missing. A traceback needs `--debug`.
"""

import contextlib
import enum
import importlib
import signal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import NoReturn

import click

from pairbus.extras import EXTRAS, MissingExtraError, missing_module
from pairbus.monitoring.formatting import mask, one_line


class ExitCode(enum.IntEnum):
    """The exit codes of `pairbus`; the same for every command."""

    OK = 0  # success; `check`, `drill`: no finding
    NEGATIVE = 1  # a problem was found: lost or dead-lettered messages; `check`, `drill`: a warning
    CRITICAL = 2  # `check`, `drill`: critical
    ERROR = 3  # the command failed: the message gives the reason (`check`: unknown)
    USAGE = 64  # the command line or the configuration file is invalid
    MISSING_EXTRA = 69  # a package is not installed: the message names it
    BUG = 70  # unexpected error: run again with --debug
    INTERRUPTED = 130  # Ctrl-C


LEVEL_CODES = {
    "ok": ExitCode.OK,
    "warning": ExitCode.NEGATIVE,
    "critical": ExitCode.CRITICAL,
    "unknown": ExitCode.ERROR,
}
"""The exit codes of `check` and `drill` by the level that they found."""


class UserError(click.ClickException):
    """An error for the user: what, which entity, what to try. One line, no traceback."""

    def __init__(self, message: str, hint: str = "", *, code: int = ExitCode.ERROR) -> None:
        super().__init__(mask(f"{message.rstrip('.')}. Try: {hint}" if hint else message))
        self.exit_code = code  # type: ignore[misc] # click reads it from the instance too


def fail(message: str, hint: str = "", *, code: int = ExitCode.ERROR) -> NoReturn:
    """End the command with one line and an exit code."""
    raise UserError(message, hint, code=code)


def require(module: str, extra: str) -> ModuleType:
    """Import a library of an extra; where it is missing, name the line that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if (exc.name or "").split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(module, extra) from exc


def missing_extra(exc: BaseException) -> UserError | None:
    """Return the extra to install, if the error or one of its causes is a missing library."""
    link: BaseException | None = exc
    while link is not None:
        if isinstance(link, MissingExtraError):
            return UserError(str(link), code=ExitCode.MISSING_EXTRA)
        if (module := missing_module(link)) is not None:
            text = str(MissingExtraError(module, EXTRAS[module]))
            return UserError(text, code=ExitCode.MISSING_EXTRA)
        link = link.__cause__
    return None


def exit_on_signals() -> None:
    """Exit on SIGTERM, and when the terminal is closed, as on Ctrl-C: clean-up code runs."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
            signal.signal(number, lambda received, _frame: sys.exit(128 + received))


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Put `what` before the errors of Service Bus and of the network in this block.

    `what` names the action and its entity: "listing the queues of contoso-dr".
    """
    try:
        yield
    except Exception as exc:
        code, hint = explain(exc) or (ExitCode.BUG, "")
        if code != ExitCode.ERROR:
            raise
        raise UserError(f"{what}: {one_line(exc)}", hint) from exc


# By name, so that no command imports a library only to distinguish errors. The first match applies.
_KNOWN: list[tuple[set[str], ExitCode, str]] = [
    # The texts of these say everything.
    ({"ConfigurationError", "PriceError", "ConfigError", "SetupError"}, ExitCode.USAGE, ""),
    ({"SparkUnavailableError", "JavaNotFoundError"}, ExitCode.MISSING_EXTRA, ""),
    ({"LedgerError", "SyphonError", "BrokerStartError", "StoreError", "ArchiveError"},
     ExitCode.ERROR, ""),
    ({"ServiceBusAuthenticationError", "ServiceBusAuthorizationError", "ClientAuthenticationError"},
     ExitCode.ERROR, "check the key or token; administration needs the right Manage"),
    ({"MessagingEntityNotFoundError", "ResourceNotFoundError"},
     ExitCode.ERROR, "check the entity's name"),
    ({"ConnectionLostError", "ServiceBusConnectionError", "ServiceBusCommunicationError",
      "OperationTimeoutError", "ServiceRequestError", "ServiceResponseError"},
     ExitCode.ERROR, "check the network connection to the namespace"),
    ({"ServiceBusError", "AzureError", "PairingError", "BrokerError", "AmqpError"},
     ExitCode.ERROR, "run again with --debug for the details"),
    ({"OSError"}, ExitCode.ERROR, "check the path, its permissions, and the network"),
]  # fmt: skip


def explain(exc: BaseException) -> tuple[ExitCode, str] | None:
    """Return the exit code of a foreseen error and what to try, maybe ""; None for a bug."""
    names = {cls.__name__ for cls in type(exc).__mro__}
    for known, code, hint in _KNOWN:
        if names & known:
            return code, hint
    return None
