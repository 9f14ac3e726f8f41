"""The bulk client: moves encoded messages in large numbers, on our own AMQP engine.

It speaks to Service Bus and to the embedded broker; it sends and receives encoded messages, settles
many together, and leaves reconnecting to its caller. Applications use azure-servicebus.

The names here block the calling thread; `pairbus.client.aio` has the same ones for asyncio.
"""

from pairbus.client._sync.connection import BulkConnection
from pairbus.client._sync.management import BulkManagement
from pairbus.client._sync.receiver import BulkReceiver
from pairbus.client._sync.sender import BulkSender, Posted
from pairbus.client.auth import SasKey, SasToken
from pairbus.client.batches import BatchOutcome
from pairbus.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    ConnectTimeoutError,
    LinkDetachedError,
    OperationTimeoutError,
    RejectedError,
    RequestFailedError,
)
from pairbus.client.received import Received
from pairbus.client.settlement import NEXT_SESSION, Mode, dead_letter

__all__ = [
    "NEXT_SESSION",
    "AuthenticationError",
    "BatchOutcome",
    "BulkConnection",
    "BulkManagement",
    "BulkReceiver",
    "BulkSender",
    "ClientError",
    "ConnectTimeoutError",
    "ConnectionLostError",
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
