"""The ledger: what was done, what it counts as, and where each message went."""

from pairbus.ledger.receipts import probe, write_receipts
from pairbus.ledger.store import LedgerError, Store
from pairbus.ledger.writer import LedgerWriter

__all__ = ["LedgerError", "LedgerWriter", "Store", "probe", "write_receipts"]
