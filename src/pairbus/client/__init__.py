"""A lean, blocking Service Bus client on the AMQP engine: for moving messages in bulk.

It speaks to Service Bus and to the embedded broker; it sends and receives encoded messages, settles
many at a time, and leaves reconnecting to its caller. For applications there is azure-servicebus.
"""

from pairbus.client.auth import SasKey, SasToken
from pairbus.client.connection import LeanConnection
from pairbus.client.errors import (
    AuthenticationError,
    ConnectionLostError,
    LeanError,
    LinkDetachedError,
    OperationTimeoutError,
    RejectedError,
    RequestFailedError,
)
from pairbus.client.management import LeanManagement
from pairbus.client.received import Received
from pairbus.client.receiver import NEXT_SESSION, LeanReceiver, Mode, dead_letter
from pairbus.client.sender import BatchOutcome, LeanSender, Posted

__all__ = [
    "NEXT_SESSION",
    "AuthenticationError",
    "BatchOutcome",
    "ConnectionLostError",
    "LeanConnection",
    "LeanError",
    "LeanManagement",
    "LeanReceiver",
    "LeanSender",
    "LinkDetachedError",
    "Mode",
    "OperationTimeoutError",
    "Posted",
    "Received",
    "RejectedError",
    "RequestFailedError",
    "SasKey",
    "SasToken",
    "dead_letter",
]
