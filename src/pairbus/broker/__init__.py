"""An embedded Service Bus: namespaces that the unmodified azure-servicebus SDK talks to."""

from .faults import Fault, Faults
from .run import RunningNamespace, run
from .settings import BrokerSettings, BrokerStartError, Limits

__all__ = [
    "BrokerSettings",
    "BrokerStartError",
    "Fault",
    "Faults",
    "Limits",
    "RunningNamespace",
    "run",
]
