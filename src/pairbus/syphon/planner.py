"""Plan the next micro-batch: which queues it reads, and how many messages and bytes of each.

The planner knows which queues have messages (the doorbell rang, or the last read found more), the
operator's limits, and the bounds of the drain. Time and facts are arguments; nothing here acts.

The namespaces' own limits are found by `pairbus.syphon.rates`; while there is one, a micro-batch is
short, and its tasks read and send at an even pace. They read somewhat faster than they send, so
that sending never waits for reading, but no more than they can send and settle within the locks.

After the primary failed, each message that is read for a primary that is still down costs a receive
and a settlement. So reading resumes with one message and doubles with every micro-batch (slow
start) until something has been delivered.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pairbus.syphon.limits import Bucket, Grant, share
from pairbus.syphon.rates import AdaptiveRate, Pace
from pairbus.syphon.records import Control, QueueRead

__all__ = ["Plan", "Planner"]

BATCH_SECONDS = 10.0  # of sending, at most, in one micro-batch at a limited rate
SLOW_START_SECONDS = 1.0
READ_AHEAD = 1.5  # times as fast as sending
LOCK_SHARE = 1 / 3  # of a lock that reading and sending may take


@dataclass(frozen=True, slots=True)
class Plan:
    """The queues to read and to poll until the next plan.

    Args:
        grants: how much the micro-batch may read; empty if there is nothing to do now.
        listen: queues to poll.
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
        ceiling: most messages a second in each namespace; None for no ceiling.
        max_tasks: most tasks of a micro-batch.
    """

    def __init__(
        self,
        queues: Sequence[str],
        *,
        per_queue: int = 5000,
        bytes_per_queue: int = 64 << 20,
        max_messages: int | None = None,
        ready: Iterable[str] = (),
        ceiling: float | None = None,
        max_tasks: int = 1,
    ) -> None:
        self.queues = tuple(queues)
        self._per_queue = per_queue
        self._bytes_per_queue = bytes_per_queue
        self._max_messages = max_messages
        self._ready: set[str] = set(ready)
        self._listens = True
        self._finished: set[str] = set()  # a snapshot has all messages of these queues
        self._fetching: set[str] = set()  # queues of which deferred messages are received
        self._was_read: set[str] = set()  # queues that were last read without sequence numbers
        self._messages, self._bytes = Bucket(), Bucket()
        self._slow_start: int | None = None  # read no more than this: the primary failed last time
        self._read_total = 0
        self._planned: tuple[int, tuple[Grant, ...]] = (-1, ())
        self._planned_at: float | None = None
        self._max_tasks = max_tasks
        self._reading = self._sending = AdaptiveRate.begin(ceiling)
        self._is_reading_busy = self._is_sending_busy = False
        self._observed = self._sending  # as the last report of a task suggests
        self._shares: list[AdaptiveRate] = []  # as the tasks of the micro-batch adapted them
        self._read_since = 0  # messages, since the last plan
        self._rate: float | None = None  # of reading, in the running micro-batch
        self._lock_seconds: float | None = None

    # -- facts

    def ready(self, queues: Iterable[str]) -> None:
        """Record that these queues have messages."""
        self._ready |= set(queues)

    def empty_once(self) -> None:
        """Read every queue until it is found empty, and do not listen for more."""
        self._ready = set(self.queues)
        self._listens = False

    def was_read(self, queue: str, read: QueueRead) -> None:
        """Record the messages that a task read from a queue."""
        if queue not in self._fetching:  # a deferred message was counted when it was first read
            self._read_total += read.messages
        self._read_since += read.messages
        self._is_reading_busy = self._is_reading_busy or read.busy > 0
        self._lock_seconds = read.lock_seconds or self._lock_seconds
        self._messages = self._messages.charge(read.messages)
        self._bytes = self._bytes.charge(read.size)
        if not read.has_more:
            self._ready.discard(queue)
        if read.is_finished:
            self._finished.add(queue)

    def primary_was_busy(self) -> None:
        """The primary answered server-busy."""
        self._is_sending_busy = True

    def task_sent(self, share: AdaptiveRate, *, has_ended: bool) -> None:
        """Record the share of the rate of sending that a task has adapted."""
        self._observed = self._sending.joined([share], self.tasks)
        if has_ended:
            self._shares.append(share)

    def primary_failed(self) -> None:
        """Nothing could be sent to the primary."""
        self._slow_start = 1

    def delivered(self) -> None:
        """The primary accepted a message."""
        self._slow_start = None

    # -- decisions

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

    def allowed_rate(self, control: Control) -> float | None:
        """Return the messages a second that can be expected to move; None for no limit."""
        reading = None if self._rate is None else self._reading.lasting  # a replay is not paced
        return _least(reading, self._observed.lasting, control.max_messages_per_second)

    def throttled_by(self, now: float) -> str | None:
        """Return which namespace allows less than the ceiling."""
        if self._observed.is_throttled(now):
            return "primary"
        return "secondary" if self._reading.is_throttled(now) else None

    @property
    def tasks(self) -> int:
        """How many tasks the planned micro-batch has."""
        return max(1, min(len(self._planned[1]), self._max_tasks))

    def pace(self, tasks: int) -> Pace | None:
        """Return how fast each of the tasks of the planned micro-batch may read."""
        return None if self._rate is None else Pace(self._rate / max(1, tasks))

    def sending(self) -> AdaptiveRate | None:
        """Return how fast each task of the planned micro-batch may send; None for no limit."""
        is_limited = self._sending.ceiling is not None or self._sending.peak is not None
        return self._sending.share(self.tasks) if is_limited else None

    def _adapt(self, now: float, control: Control) -> None:
        """Adapt the rates to the results of the micro-batch that has ended."""
        granted = self.in_flight
        seconds = 0.0 if self._planned_at is None else max(0.1, now - self._planned_at)
        if granted and seconds:
            was_used = self._read_since >= 0.5 * granted
            measured = self._read_since / seconds
            if self._is_reading_busy:
                self._reading = self._reading.busy(now, measured)
            elif was_used:
                self._reading = self._reading.used(seconds)
            if self._shares:
                self._sending = self._sending.joined(self._shares, self.tasks)
            elif self._is_sending_busy:
                self._sending = self._sending.busy(now, measured)
            elif was_used:
                self._sending = self._sending.used(seconds)
        self._is_reading_busy = self._is_sending_busy = False
        self._observed = self._sending
        self._shares, self._planned_at, self._read_since = [], now, 0
        ahead = self._sending.limit and self._sending.limit * READ_AHEAD
        self._rate = _least(self._reading.limit, ahead, control.max_messages_per_second)

    def plan(
        self,
        epoch: int,
        now: float,
        control: Control,
        *,
        is_stopping: bool,
        is_blocked: bool,
        not_now: Collection[str],
        deferred: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Plan:
        """Plan the micro-batch after `epoch`; the one before is over.

        Args:
            epoch: the micro-batch that has ended.
            now: seconds since 1970.
            control: the operator's controls.
            is_stopping: the syphon is asked to end.
            is_blocked: nothing can be delivered now.
            not_now: queues that must not be read now.
            deferred: deferred messages that may be received now, by queue. A queue that also has
                other messages is read in turn: the others first, because they may be older.
        """
        self._adapt(now, control)
        self._messages = self._messages.limit(control.max_messages_per_second).refill(now)
        self._bytes = self._bytes.limit(control.max_bytes_per_second).refill(now)
        is_idle = is_stopping or control.paused
        is_listening = self._listens and not is_idle
        quiet = [q for q in self.queues if q not in self._ready and q not in self._finished]
        grants: tuple[Grant, ...] = ()
        if not is_idle and not is_blocked:
            numbers = self._take_turns(deferred or {})
            wanted = [
                queue
                for queue in self.queues
                if queue in numbers
                or (queue in self._ready and queue not in {*self._finished, *not_now})
            ]
            grants = tuple(
                replace(grant, numbers=numbers[grant.queue][: grant.messages])
                if grant.queue in numbers
                else grant
                for grant in self._share(wanted, numbers, epoch)
            )
            self._fetching = {grant.queue for grant in grants if grant.numbers}
            read = {grant.queue for grant in grants}
            self._was_read = (self._was_read | read) - self._fetching
        if grants and self._slow_start is not None:
            self._slow_start *= 2
        self._planned = (epoch + 1, grants)
        return Plan(grants, tuple(quiet) if is_listening else (), is_listening)

    def _take_turns(self, deferred: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return the deferred messages to receive now."""
        has_others = self._ready - self._finished
        return {
            queue: numbers
            for queue, numbers in deferred.items()
            if numbers and (queue not in has_others or queue in self._was_read)
        }

    def _share(self, wanted: Sequence[str], deferred: Collection[str], epoch: int) -> list[Grant]:
        bounds = [self._messages.available(), self._slow_start, self._batch_size()]
        if self._max_messages is not None:
            left = max(0, self._max_messages - self._read_total)
            if left:
                bounds.append(left)
            else:
                wanted = [queue for queue in wanted if queue in deferred]
        return share(
            wanted,
            per_queue=self._per_queue,
            bytes_per_queue=self._bytes_per_queue,
            messages=min((bound for bound in bounds if bound is not None), default=None),
            size=self._bytes.available(),
            turn=epoch,
        )

    def _batch_size(self) -> int | None:
        """Return how many messages can be read and sent in one micro-batch, within their locks."""
        rate = _least(self._rate, self._sending.limit)
        if rate is None:
            return None
        is_slow_start = self._reading.peak is None and self._sending.peak is None
        seconds = SLOW_START_SECONDS if is_slow_start else BATCH_SECONDS
        if self._lock_seconds is not None:
            seconds = min(seconds, self._lock_seconds * LOCK_SHARE)
        return max(1, int(rate * seconds))

    def grants(self, epoch: int) -> tuple[Grant, ...]:
        """Return the grants of an epoch; empty for one that another coordinator planned."""
        planned, grants = self._planned
        return grants if epoch == planned else ()

    def replay(self, epoch: int, queues: Collection[str], now: float) -> tuple[Grant, ...]:
        """Return grants for an epoch that another coordinator planned.

        How much it granted is not known, and any queue may have messages.
        """
        self._ready |= set(self.queues)
        grants = tuple(
            Grant(queue, self._per_queue, self._bytes_per_queue)
            for queue in self.queues
            if queue in queues
        )
        self._planned, self._planned_at = (epoch, grants), now
        return grants


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
