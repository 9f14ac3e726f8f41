"""The bulk client for asyncio: the same names as in `pairbus.client`."""

from pairbus.client._async.connection import BulkConnection
from pairbus.client._async.management import BulkManagement
from pairbus.client._async.receiver import BulkReceiver
from pairbus.client._async.sender import BulkSender, Posted

__all__ = [
    "BulkConnection",
    "BulkManagement",
    "BulkReceiver",
    "BulkSender",
    "Posted",
]
