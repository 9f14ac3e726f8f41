"""The former place of `pairbus.client.BulkManagement`."""

from pairbus.client._sync.management import BulkManagement

LeanManagement = BulkManagement
__all__ = ["BulkManagement", "LeanManagement"]
