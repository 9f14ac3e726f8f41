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


# The SDK is imported with the first name that needs it, as in `pairbus`.
_HOMES = {
    "PairedClient": "pairbus.pairing._async.client",
    "PairedSender": "pairbus.pairing._async.sender",
    "SecondaryClient": "pairbus.pairing._async.guarded",
    "pair_namespace": "pairbus.pairing._async.pairing",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("aio"):
        home = importlib.import_module(_HOMES.get(name, "pairbus"))
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
