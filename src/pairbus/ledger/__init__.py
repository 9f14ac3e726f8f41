"""The ledger: what was done, what it counts as, and where each message went."""

from .receipts import probe, write_receipts
from .store import LedgerError, Store
from .writer import LedgerWriter

__all__ = ["LedgerError", "LedgerWriter", "Store", "probe", "write_receipts"]
