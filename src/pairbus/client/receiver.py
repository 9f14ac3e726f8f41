"""The former place of `pairbus.client.BulkReceiver`."""

from pairbus.client._sync.receiver import BulkReceiver
from pairbus.client.settlement import NEXT_SESSION, Mode, dead_letter

LeanReceiver = BulkReceiver
__all__ = ["NEXT_SESSION", "BulkReceiver", "LeanReceiver", "Mode", "dead_letter"]
