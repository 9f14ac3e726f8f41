"""The former place of `pairbus.client.BulkConnection`."""

from pairbus.client._sync.connection import BulkConnection

LeanConnection = BulkConnection
__all__ = ["BulkConnection", "LeanConnection"]
