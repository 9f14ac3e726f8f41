"""Where the syphon registers for `enable_syphon`: pairing itself does not import Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pairbus.extras import is_installed

if TYPE_CHECKING:
    from pairbus.options import SyphonOptions

__all__ = ["RunningSyphon", "check_syphon", "register_syphon", "start_registered_syphon"]


NEEDS_SPARK = "enable_syphon needs: pip install 'pairbus[spark]'"


class RunningSyphon(Protocol):
    """A syphon that was started."""

    def stop(self) -> object:
        """Stop it, and wait until it has stopped."""


_starters: list[tuple[Callable[[SyphonOptions], RunningSyphon], str | None]] = []


def register_syphon(
    start: Callable[[SyphonOptions], RunningSyphon], *, package: str | None = None
) -> None:
    """Let `enable_syphon` call `start`; the one that was registered last is used.

    Args:
        start: starts a syphon.
        package: the package that it needs.
    """
    _starters.append((start, package))


def check_syphon() -> None:
    """Check that a syphon can be started here, before anything is.

    Raises:
        PairingError: if Spark is not installed, or no syphon is registered.
    """
    from pairbus.exceptions import PairingError  # imports the SDK: not when `pairbus` is imported

    if not _starters:
        raise PairingError("enable_syphon needs a syphon: import pairbus, which registers one")
    package = _starters[-1][1]
    if package is not None and not is_installed(package):
        raise PairingError(NEEDS_SPARK)


def start_registered_syphon(options: SyphonOptions) -> RunningSyphon:
    """Start the syphon.

    Raises:
        PairingError: if Spark is not installed, or no syphon is registered.
    """
    from pairbus.exceptions import PairingError

    check_syphon()
    try:
        return _starters[-1][0](options)
    except ImportError as error:
        raise PairingError(NEEDS_SPARK) from error
