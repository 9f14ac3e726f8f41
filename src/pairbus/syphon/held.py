"""Messages that stay locked because their destination cannot accept them now.

They stay locked so that the next read reaches the messages behind them. While a destination waits,
newer messages for it are held too, so that none overtakes. When its back-off has passed, the oldest
message is returned to the queue as a probe: the next micro-batch receives it, and it alone may be
sent. If it is accepted, all held messages are returned, newest first, and the destination is open
again; if not, the back-off doubles. If no task reports the probe, its queue could not be read, or
another syphon has delivered it: then all are returned too, because a second probe could overtake
the first. The whole primary is the destination `*`, with one difference: nothing is read while it
waits, and then all its messages are returned together. Its wait ends early when a connection to it
succeeds.

The syphon waits for a destination that does not exist as for any other, but not for ever: after
`missing_timeout` it is *expired*, and its messages are returned so that tasks dead-letter them.

A destination that was waited for as long as two locks last is *deferring*, and so is one for which
too many messages are held: all its messages are deferred in their queues, and tasks defer those
that come later. Its probe is the oldest deferred message, received by its number. When it accepts
messages, or is expired, it is *draining*: its deferred messages are received in their order, and it
is open again when none is left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pairbus.syphon.backoff import Backoff
from pairbus.syphon.records import BlockedRecord, HeldMessage, HeldRecord
from pairbus.syphon.refusals import Cause, judge

__all__ = ["WHOLE_PRIMARY", "HeldMessages"]

#: The destination that stands for the whole primary.
WHOLE_PRIMARY = "*"

MOST_HELD = 20_000  # messages that are held for one destination


@dataclass(slots=True)
class _Destination:
    """Why and until when a destination waits."""

    condition: str
    failures: int
    until: float
    failed_at: float = 0.0
    shortcuts: int = 0  # waits that a probe ended early, in vain
    probe: tuple[str, int] | None = None
    probed_at: float = 0.0
    since: float = 0.0
    is_deferring: bool = False
    is_draining: bool = False
    held: dict[str, HeldMessage] = field(default_factory=dict)
    leaving: dict[str, HeldMessage] = field(default_factory=dict)  # are being deferred

    def messages(self) -> list[HeldMessage]:
        return [*self.held.values(), *self.leaving.values()]


class HeldMessages:
    """The messages that are held, by destination. Time is an argument; nothing here acts."""

    def __init__(
        self,
        *,
        destination: Backoff | None = None,
        primary: Backoff | None = None,
        probe_patience: float = 60.0,
        missing_timeout: float = 86400.0,
        most_locks: float = 2.0,
    ) -> None:
        self._backoff = destination or Backoff()
        self._primary = primary or Backoff(first=2.0, most=60.0)
        self._patience = probe_patience
        self._missing_timeout = missing_timeout
        self._most_locks = most_locks  # lock durations, until messages are deferred
        self._missing_since: dict[str, float] = {}
        self._expired: set[str] = set()
        self._destinations: dict[str, _Destination] = {}

    def counts(self) -> dict[str, int]:
        """Return how many messages are held, by destination."""
        return {name: len(one.held) for name, one in self._destinations.items() if one.held}

    def fail(self, destination: str, condition: str, now: float) -> None:
        """A destination (or `*`) refused: back off, longer after each consecutive failure."""
        found = self._destinations.get(destination)
        failures = found.failures + 1 if found else 1
        if found and now < found.until and found.probe is None:
            return  # several tasks report the same failure
        backoff = self._primary if destination == WHOLE_PRIMARY else self._backoff
        until = now + backoff.delay(failures)
        if judge(condition).cause is Cause.MISSING and destination not in self._expired:
            self._missing_since.setdefault(destination, now)
        if found:
            found.condition, found.failures, found.failed_at = condition, failures, now
            found.until, found.is_draining = until, False
            if found.is_deferring:
                found.probe = None
            # Else the probe ends when it is held again. A task that failed may have begun before
            # the probe was returned: then the probe is still in the queue, and must stay first.
        else:
            self._destinations[destination] = _Destination(
                condition, failures, until, now, since=now
            )

    def hold(self, messages: Iterable[HeldMessage], now: float) -> None:
        """Hold messages for their destinations."""
        for message in messages:
            found = self._find(message.destination, now)
            found.held[message.token] = message
            probe = found.probe
            if probe and probe[0] == message.queue and message.sequence <= probe[1]:
                # The probe was not sent, because an older message came with it; or an older one
                # came after the probe was chosen: a coordinator that died had returned it.
                found.probe = None

    def _find(self, destination: str, now: float) -> _Destination:
        """Return a destination; one that recovered while a task ran has messages that are due."""
        new = _Destination("", 0, now, since=now)
        return self._destinations.setdefault(destination, new)

    def is_waiting_for(self, destinations: Iterable[str]) -> bool:
        """Whether one of these destinations is in the record for the next coordinator."""
        known = self._destinations.keys() | self._missing_since.keys() | self._expired
        return not known.isdisjoint(destinations)

    def accept(self, destinations: Iterable[str]) -> list[HeldMessage]:
        """Destinations accepted a message: return their held messages, newest first."""
        free: list[HeldMessage] = []
        for destination in destinations:
            self._missing_since.pop(destination, None)
            self._expired.discard(destination)
            free += self._release(destination)
        return newest_first(free)

    def _release(self, destination: str) -> Iterable[HeldMessage]:
        """Take the messages of a destination that is waited for no longer, or begin to drain it."""
        found = self._destinations.get(destination)
        if found and found.is_deferring:
            self.drain(destination)
        elif found:
            return self._destinations.pop(destination).held.values()
        return ()

    def reach_primary(self, at: float, now: float) -> None:
        """A probe reached the primary: end its wait, if it failed before that.

        If the primary can be reached but accepts nothing, the wait ends later each time.
        """
        found = self._destinations.get(WHOLE_PRIMARY)
        if found is None or now >= found.until or at <= found.failed_at:
            return
        if found.shortcuts and now < found.failed_at + self._primary.delay(found.shortcuts):
            return
        found.until = now
        found.shortcuts += 1

    def _expire(self, now: float) -> list[HeldMessage]:
        free: list[HeldMessage] = []
        for destination, since in list(self._missing_since.items()):
            if now - since >= self._missing_timeout:
                self._expired.add(destination)
                del self._missing_since[destination]
                free += self._release(destination)
        return free

    def due(self, now: float) -> list[HeldMessage]:
        """Take the messages to return to the queues now, newest first: probes and freed ones."""
        free = self._expire(now)
        for destination, found in list(self._destinations.items()):
            if now < found.until or found.is_deferring:
                continue
            if destination == WHOLE_PRIMARY:
                free.extend(found.held.values())
                found.held.clear()
                if now >= found.until + self._patience:  # the next failure is a first one again
                    del self._destinations[destination]
                continue
            has_recovered = not found.failures  # while the task ran: there is nothing to probe
            is_probed = found.probe is not None
            if is_probed and not has_recovered and now < found.probed_at + self._patience:
                continue
            if has_recovered or is_probed or not found.held:
                # A probe that no task reported: return the others behind it.
                free.extend(found.held.values())
                del self._destinations[destination]
                continue
            oldest = min(found.held.values(), key=lambda held: (held.sequence, held.queue))
            del found.held[oldest.token]
            found.probe, found.probed_at = (oldest.queue, oldest.sequence), now
            free.append(oldest)
        return newest_first(free)

    # -- deferring

    def defer(self, destination: str, now: float) -> None:
        """Defer the messages of a destination, those that are held and those that come later."""
        self._find(destination, now).is_deferring = True

    def drain(self, destination: str) -> None:
        """Begin to receive and send the deferred messages of a destination."""
        found = self._destinations[destination]
        found.is_draining, found.failures, found.until, found.probe = True, 0, 0.0, None

    def take_waiting(self, now: float, *, lock: float) -> list[HeldMessage]:
        """Take the messages to defer now; call `deferred` when they are deferred or still locked.

        None are taken for a destination whose probe is in the queue: the probe must stay first.
        """
        for name, found in self._destinations.items():
            is_long = now - found.since >= self._most_locks * lock or len(found.held) > MOST_HELD
            if name != WHOLE_PRIMARY and found.held and found.probe is None and is_long:
                found.is_deferring = True
        taken: list[HeldMessage] = []
        for found in self._destinations.values():
            if found.is_deferring and found.held:
                taken += found.held.values()
                found.leaving |= found.held
                found.held = {}
        return taken

    def deferred(self, messages: Iterable[HeldMessage], *, is_kept: bool = False) -> None:
        """Messages are deferred, or their locks are lost; `is_kept` if they are held after all."""
        for message in messages:
            found = self._destinations.get(message.destination)
            if found and found.leaving.pop(message.token, None) and is_kept:
                found.held[message.token] = message

    def leaving(self) -> set[str]:
        """Return the queues with messages that are being deferred now."""
        return {m.queue for d in self._destinations.values() for m in d.leaving.values()}

    def next_fetch(self, waiting: Mapping[str, int], now: float) -> tuple[set[str], list[str]]:
        """Decide for which destinations deferred messages are received next.

        Call it while no micro-batch runs.

        Args:
            waiting: how many messages are deferred, by destination.
            now: the time.

        Returns:
            The destinations that are draining, and those to probe with one message.
        """
        draining, probing = set[str](), []
        for name in waiting:
            if name not in self._destinations:
                self.defer(name, now)
        for name, found in list(self._destinations.items()):
            if not found.is_deferring:
                continue
            if not waiting.get(name) and not found.messages():
                del self._destinations[name]
            elif found.held:
                continue  # older than deferred ones, perhaps: they must be deferred first
            elif found.is_draining:
                draining.add(name)
            else:
                if found.probe is not None:  # no task reported it
                    found.probe, found.until = None, now + self._backoff.delay(1)
                if now >= found.until:
                    probing.append(name)
        return draining, probing

    def probe(self, destination: str, message: tuple[str, int], now: float) -> None:
        """Record that a deferred message is received and sent as a probe."""
        found = self._destinations[destination]
        found.probe, found.probed_at = message, now

    def settled(self, queue: str, numbers: Iterable[int]) -> None:
        """Messages that were received by number were settled: a probe among them succeeded."""
        probes = {d.probe: name for name, d in self._destinations.items() if d.probe}
        for number in numbers:
            name = probes.get((queue, number))
            if name is not None and self._destinations[name].is_deferring:
                self.drain(name)

    # -- locks

    def renewals(self, now: float, *, lock: float) -> dict[str, list[str]]:
        """Return the tokens, by queue, whose lock has less than half of its `lock` seconds left."""
        wanted: dict[str, list[str]] = {}
        for found in self._destinations.values():
            for held in found.held.values():
                if held.locked_until - now < lock / 2:
                    wanted.setdefault(held.queue, []).append(held.token)
        return wanted

    def renewed(self, ends: Mapping[str, float | None]) -> None:
        """Record until when locks last; None for a lost one: the queue hands out its message."""
        for found in self._destinations.values():
            for token in ends.keys() & found.held.keys():
                end, held = ends[token], found.held.pop(token)
                if end is not None:
                    found.held[token] = replace(held, locked_until=end)

    def take_all(self) -> list[HeldMessage]:
        """Take all messages, newest first, to return them when the syphon stops."""
        taken = [held for d in self._destinations.values() for held in d.held.values()]
        self._destinations = {n: d for n, d in self._destinations.items() if d.is_deferring}
        for found in self._destinations.values():
            found.held = {}
        return newest_first(taken)

    def messages(self) -> list[HeldMessage]:
        """Return all messages, newest first."""
        return newest_first([h for d in self._destinations.values() for h in d.messages()])

    def paused_until(self) -> float:
        """Return until when reading waits for the whole primary; 0 if it does not wait."""
        found = self._destinations.get(WHOLE_PRIMARY)
        return found.until if found else 0.0

    def succeed(self, now: float) -> None:
        """Record that a message was delivered: the primary works again."""
        found = self._destinations.get(WHOLE_PRIMARY)
        if found and now >= found.until and not found.held:
            del self._destinations[WHOLE_PRIMARY]

    def blocked(self) -> BlockedRecord:
        """Return the destinations that wait, each with the one message that may be sent."""
        probes = {n: d.probe for n, d in self._destinations.items() if n != WHOLE_PRIMARY}
        deferring = sorted(name for name, d in self._destinations.items() if d.is_deferring)
        expired = tuple(sorted(self._expired))
        return BlockedRecord(probes, self.paused_until(), expired, tuple(deferring))

    def reasons(self) -> Mapping[str, str]:
        """Return why each destination waits; an empty text for one that is draining."""
        return {n: "" if d.is_draining else d.condition for n, d in self._destinations.items()}

    def record(self) -> HeldRecord:
        """Return the record from which the next coordinator continues."""
        failed = {name: why for name, why in self.reasons().items() if name != WHOLE_PRIMARY}
        expired = tuple(sorted(self._expired))
        return HeldRecord(tuple(self.messages()), failed, dict(self._missing_since), expired)

    def restore(self, record: HeldRecord, now: float) -> None:
        """Take over the held messages of a former coordinator."""
        self._missing_since |= record.missing_since
        self._expired |= set(record.expired)
        for destination, condition in record.failed.items():
            if condition:
                self.fail(destination, condition, now)
        self.hold(record.held, now)


def newest_first(messages: Iterable[HeldMessage]) -> list[HeldMessage]:
    """Sort messages by queue, each queue's newest first: the order in which to return them."""
    return sorted(messages, key=lambda held: (held.queue, -held.sequence))
