"""How a task of the sink delivers."""

from dataclasses import dataclass, field

from pairbus.syphon.records import BlockedRecord
from pairbus.syphon.retarget import Route

__all__ = ["DeliverySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """How a task delivers.

    Args:
        destination: the destination of rows that name none.
        blocked: destinations that wait, messages that may be sent nevertheless, and the rate of
            sending.
        waits_for_missing: wait for a destination that does not exist, instead of dead-lettering.
        max_bytes: most bytes of a batch.
        primary: name of the namespace to which messages are sent, in the ledger.
        secondary: name of the namespace where messages are settled.
        route: the target, if it is not the primary, and the messages that a former target may have.
    """

    destination: str | None = None
    blocked: BlockedRecord = field(default_factory=BlockedRecord)
    waits_for_missing: bool = False
    max_bytes: int = 1_000_000
    primary: str = "primary"
    secondary: str = "secondary"
    route: Route = field(default_factory=Route)

    def waits_for(self, destination: str) -> bool:
        """Whether a destination that does not exist is waited for."""
        return self.waits_for_missing and destination.lower() not in self.blocked.expired
