"""What the next micro-batch may read: which queues, and how many messages and bytes of each.

The planner knows which queues have messages (the doorbell rang, or the last read found more), the
operator's limits, and the bounds of the drain. Time and facts are arguments; nothing here acts.

After the primary failed, each message that is read for a primary that is still down costs a receive
and a settlement. So reading resumes with one message and doubles with every micro-batch (slow
start) until something has been delivered.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pairbus.syphon.limits import Bucket, Grant, share
from pairbus.syphon.records import Control, QueueRead

__all__ = ["Plan", "Planner"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do until the next plan.

    Args:
        grants: what the micro-batch may read; empty if there is nothing to do now.
        listen: queues to listen at.
        is_listening: whether the doorbell is in use at all.
    """

    grants: tuple[Grant, ...]
    listen: tuple[str, ...]
    is_listening: bool


class Planner:
    """Plans micro-batches over the backlog queues.

    Args:
        queues: paths of the backlog queues.
        per_queue: most messages of one queue in one micro-batch.
        bytes_per_queue: most bytes.
        max_messages: read this many in all.
        ready: queues to read before the doorbell rings.
    """

    def __init__(
        self,
        queues: Sequence[str],
        *,
        per_queue: int = 5000,
        bytes_per_queue: int = 64 << 20,
        max_messages: int | None = None,
        ready: Iterable[str] = (),
    ) -> None:
        self.queues = tuple(queues)
        self._per_queue = per_queue
        self._bytes_per_queue = bytes_per_queue
        self._max_messages = max_messages
        self._ready: set[str] = set(ready)
        self._listens = True
        self._finished: set[str] = set()  # a snapshot has all messages of these queues
        self._messages, self._bytes = Bucket(), Bucket()
        self._slow_start: int | None = None  # read no more than this: the primary failed last time
        self._read_total = 0
        self._planned: tuple[int, tuple[Grant, ...]] = (-1, ())

    # -- facts

    def ready(self, queues: Iterable[str]) -> None:
        """Queues have messages."""
        self._ready |= set(queues)

    def empty_once(self) -> None:
        """Read every queue until it is found empty, and do not listen for more."""
        self._ready = set(self.queues)
        self._listens = False

    def was_read(self, queue: str, read: QueueRead) -> None:
        """A task read a queue."""
        self._read_total += read.messages
        self._messages = self._messages.charge(read.messages)
        self._bytes = self._bytes.charge(read.size)
        if not read.has_more:
            self._ready.discard(queue)
        if read.is_finished:
            self._finished.add(queue)

    def primary_failed(self) -> None:
        """Nothing could be sent to the primary."""
        self._slow_start = 1

    def delivered(self) -> None:
        """The primary accepted a message."""
        self._slow_start = None

    # -- what follows

    @property
    def ready_queues(self) -> Collection[str]:
        """The queues that have messages."""
        return self._ready

    @property
    def is_drained(self) -> bool:
        """Whether a bounded drain has read all that it may."""
        if self._max_messages is not None and self._read_total >= self._max_messages:
            return True
        return len(self._finished) == len(self.queues)

    @property
    def granted(self) -> set[str]:
        """The queues that the running micro-batch may read."""
        return {grant.queue for grant in self._planned[1]}

    @property
    def in_flight(self) -> int:
        """How many messages the running micro-batch may read."""
        return sum(grant.messages for grant in self._planned[1])

    def plan(
        self,
        epoch: int,
        now: float,
        control: Control,
        *,
        is_stopping: bool,
        is_blocked: bool,
        not_now: Collection[str],
    ) -> Plan:
        """Plan the micro-batch after `epoch`; the one before is over.

        Args:
            epoch: the micro-batch that has ended.
            now: seconds since 1970.
            control: the operator's controls.
            is_stopping: the syphon is asked to end.
            is_blocked: nothing can be delivered now.
            not_now: queues that must not be read now.
        """
        self._messages = self._messages.limit(control.max_messages_per_second).refill(now)
        self._bytes = self._bytes.limit(control.max_bytes_per_second).refill(now)
        is_idle = is_stopping or control.paused
        is_listening = self._listens and not is_idle
        quiet = [q for q in self.queues if q not in self._ready and q not in self._finished]
        grants: tuple[Grant, ...] = ()
        if not is_idle and not is_blocked:
            wanted = [
                queue
                for queue in self.queues
                if queue in self._ready and queue not in self._finished and queue not in not_now
            ]
            grants = tuple(self._share(wanted, epoch))
        if grants and self._slow_start is not None:
            self._slow_start *= 2
        self._planned = (epoch + 1, grants)
        return Plan(grants, tuple(quiet) if is_listening else (), is_listening)

    def _share(self, wanted: Sequence[str], epoch: int) -> list[Grant]:
        bounds = [self._messages.available(), self._slow_start]
        if self._max_messages is not None:
            bounds.append(max(0, self._max_messages - self._read_total))
        return share(
            wanted,
            per_queue=self._per_queue,
            bytes_per_queue=self._bytes_per_queue,
            messages=min((bound for bound in bounds if bound is not None), default=None),
            size=self._bytes.available(),
            turn=epoch,
        )

    def grants(self, epoch: int) -> tuple[Grant, ...]:
        """Return the grants of an epoch; for one that another coordinator planned, all queues.

        Which queues a replayed epoch had is not known, and any of them may have journal pages.
        """
        planned, grants = self._planned
        if epoch != planned or not grants:
            self._ready |= set(self.queues)
            grants = tuple(
                Grant(queue, self._per_queue, self._bytes_per_queue) for queue in self.queues
            )
            self._planned = (epoch, grants)
        return grants
