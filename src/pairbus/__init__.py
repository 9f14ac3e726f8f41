"""Paired namespaces for Azure Service Bus: senders that survive an outage."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from pairbus._moved import install
from pairbus._version import __version__
from pairbus.pairing.syphon_hook import RunningSyphon, register_syphon

if TYPE_CHECKING:
    from pairbus.classify import Verdict
    from pairbus.exceptions import (
        ClientClosedError,
        ClientFaultedError,
        NotCancellableError,
        OversizeError,
        PairingError,
        PairUnavailableError,
        PartlySentError,
        ReservedPropertyError,
    )
    from pairbus.options import SendAvailabilityPairedNamespaceOptions, SyphonOptions
    from pairbus.pairing._sync.client import PairedClient
    from pairbus.pairing._sync.guarded import SecondaryClient
    from pairbus.pairing._sync.pairing import pair_namespace
    from pairbus.pairing._sync.sender import PairedSender
    from pairbus.status import BacklogQueueStatus, EntityStatus, PairStatus

__all__ = [
    "BacklogQueueStatus",
    "ClientClosedError",
    "ClientFaultedError",
    "EntityStatus",
    "NotCancellableError",
    "OversizeError",
    "PairStatus",
    "PairUnavailableError",
    "PairedClient",
    "PairedSender",
    "PairingError",
    "PartlySentError",
    "ReservedPropertyError",
    "SecondaryClient",
    "SendAvailabilityPairedNamespaceOptions",
    "SyphonOptions",
    "Verdict",
    "__version__",
    "pair_namespace",
]


def _start_syphon(options: SyphonOptions) -> RunningSyphon:
    from pairbus.spark.syphon import start_syphon

    return start_syphon(options)


register_syphon(_start_syphon)


def __getattr__(name: str) -> Any:
    # The SDK is imported with the first name that needs it: the command line and Spark's workers
    # import this package too, and should not wait for it.
    home: ModuleType
    match name:
        case "PairedClient":
            from pairbus.pairing._sync import client as home
        case "PairedSender":
            from pairbus.pairing._sync import sender as home
        case "SecondaryClient":
            from pairbus.pairing._sync import guarded as home
        case "pair_namespace":
            from pairbus.pairing._sync import pairing as home
        case "SendAvailabilityPairedNamespaceOptions" | "SyphonOptions":
            from pairbus import options as home
        case "BacklogQueueStatus" | "EntityStatus" | "PairStatus":
            from pairbus import status as home
        case "Verdict":
            from pairbus import classify as home
        case _ if name in __all__:
            from pairbus import exceptions as home
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


install()
