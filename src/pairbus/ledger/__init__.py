"""The ledger: every billable operation, and the history of each message in the backlog."""

from pairbus.ledger.receipts import ReceiptWriter, probe, write_receipts
from pairbus.ledger.store import LedgerError, Store
from pairbus.ledger.writer import LedgerWriter

__all__ = ["LedgerError", "LedgerWriter", "ReceiptWriter", "Store", "probe", "write_receipts"]
