"""Paired namespaces for Azure Service Bus: senders that survive an outage."""

from __future__ import annotations

import importlib
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


# The SDK is imported with the first name that needs it: the command line and Spark's workers import
# this package too, and should not wait for it.
_HOMES = {
    "PairedClient": "pairbus.pairing._sync.client",
    "PairedSender": "pairbus.pairing._sync.sender",
    "SecondaryClient": "pairbus.pairing._sync.guarded",
    "pair_namespace": "pairbus.pairing._sync.pairing",
    "SendAvailabilityPairedNamespaceOptions": "pairbus.options",
    "SyphonOptions": "pairbus.options",
    "BacklogQueueStatus": "pairbus.status",
    "EntityStatus": "pairbus.status",
    "PairStatus": "pairbus.status",
    "Verdict": "pairbus.classify",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(_HOMES.get(name, "pairbus.exceptions"))
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


install()
