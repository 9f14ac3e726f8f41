"""Where the syphon registers for `enable_syphon`: pairing itself does not import Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pairbus.extras import is_installed, missing_module

if TYPE_CHECKING:
    from pairbus.options import SyphonOptions

NEEDS_SPARK = "enable_syphon needs: pip install 'pairbus[spark]'"


class RunningSyphon(Protocol):
    """A syphon that was started."""

    def stop(self) -> object:
        """Stop it, and wait until it has stopped."""


_start: Callable[[SyphonOptions], RunningSyphon]


def register_syphon(start: Callable[[SyphonOptions], RunningSyphon]) -> None:
    """Let `enable_syphon` call `start`: `pairbus` does this when it is imported."""
    global _start
    _start = start


def check_syphon() -> None:
    """Check that a syphon can be started here, before anything is.

    Raises:
        PairingError: if Spark is not installed.
    """
    from pairbus.exceptions import PairingError  # imports the SDK: not when `pairbus` is imported

    if not is_installed("pyspark"):
        raise PairingError(NEEDS_SPARK)


def start_registered_syphon(options: SyphonOptions) -> RunningSyphon:
    """Start the syphon.

    Raises:
        PairingError: if Spark is not installed.
    """
    from pairbus.exceptions import PairingError

    try:
        return _start(options)
    except ImportError as error:
        if missing_module(error) is None:
            raise
        raise PairingError(NEEDS_SPARK) from error
