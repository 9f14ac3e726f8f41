"""Paired namespaces for `azure.servicebus.aio`: the names of `pairbus`, async."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pairbus._version import __version__
from pairbus.extras import needs

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
    from pairbus.pairing._async.client import PairedClient
    from pairbus.pairing._async.guarded import SecondaryClient
    from pairbus.pairing._async.pairing import pair_namespace
    from pairbus.pairing._async.sender import PairedSender
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
    "PairedClient": "pairbus.pairing._async.client",
    "PairedSender": "pairbus.pairing._async.sender",
    "PairingError": "pairbus.exceptions",
    "PartlySentError": "pairbus.exceptions",
    "ReservedPropertyError": "pairbus.exceptions",
    "SecondaryClient": "pairbus.pairing._async.guarded",
    "SendAvailabilityPairedNamespaceOptions": "pairbus.options",
    "SyphonOptions": "pairbus.options",
    "Verdict": "pairbus.classify",
    "pair_namespace": "pairbus.pairing._async.pairing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("aio"):
        module = importlib.import_module(home)
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
