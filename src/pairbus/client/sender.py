"""The former place of `pairbus.client.BulkSender`."""

from pairbus.client._sync.sender import BulkSender, Posted

LeanSender = BulkSender
__all__ = ["BulkSender", "LeanSender", "Posted"]
