"""Where the syphon registers for `enable_syphon`: pairing itself does not import Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pairbus.options import SyphonOptions

__all__ = ["RunningSyphon", "register_syphon", "start_registered_syphon"]


class RunningSyphon(Protocol):
    """A syphon that was started."""

    def stop(self) -> object:
        """Stop it, and wait until it has stopped."""


_starters: list[Callable[[SyphonOptions], RunningSyphon]] = []


def register_syphon(start: Callable[[SyphonOptions], RunningSyphon]) -> None:
    """Let `enable_syphon` call `start`; the one that was registered last is used."""
    _starters.append(start)


def start_registered_syphon(options: SyphonOptions) -> RunningSyphon:
    """Start the syphon.

    Raises:
        PairingError: if Spark is not installed, or no syphon is registered.
    """
    from pairbus.exceptions import PairingError  # imports the SDK: not when `pairbus` is imported

    if not _starters:
        raise PairingError("enable_syphon needs a syphon: import pairbus, which registers one")
    try:
        return _starters[-1](options)
    except ImportError as error:
        raise PairingError("enable_syphon needs: pip install 'pairbus[spark]'") from error
