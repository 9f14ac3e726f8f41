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

# The SDK is imported with the first name that needs it: the command line and Spark's workers
# import this package too, and should not wait for it.
_HOMES = {
    "BacklogQueueStatus": "pairbus.status",
    "ClientClosedError": "pairbus.exceptions",
    "ClientFaultedError": "pairbus.exceptions",
    "EntityStatus": "pairbus.status",
    "NotCancellableError": "pairbus.exceptions",
    "OversizeError": "pairbus.exceptions",
    "PairStatus": "pairbus.status",
    "PairUnavailableError": "pairbus.exceptions",
    "PairedClient": "pairbus.pairing._sync.client",
    "PairedSender": "pairbus.pairing._sync.sender",
    "PairingError": "pairbus.exceptions",
    "PartlySentError": "pairbus.exceptions",
    "ReservedPropertyError": "pairbus.exceptions",
    "SecondaryClient": "pairbus.pairing._sync.guarded",
    "SendAvailabilityPairedNamespaceOptions": "pairbus.options",
    "SyphonOptions": "pairbus.options",
    "Verdict": "pairbus.classify",
    "pair_namespace": "pairbus.pairing._sync.pairing",
}


def _start_syphon(options: SyphonOptions) -> RunningSyphon:
    from pairbus.spark.syphon import start_syphon

    return start_syphon(options)


register_syphon(_start_syphon)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


install()
