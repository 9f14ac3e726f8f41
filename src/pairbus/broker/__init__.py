"""An embedded Service Bus broker for the unmodified azure-servicebus SDK."""

from pairbus.broker.faults.faults import Fault, Faults
from pairbus.broker.run import RunningNamespace, run
from pairbus.broker.settings import BrokerSettings, BrokerStartError, Limits

__all__ = [
    "BrokerSettings",
    "BrokerStartError",
    "Fault",
    "Faults",
    "Limits",
    "RunningNamespace",
    "run",
]
