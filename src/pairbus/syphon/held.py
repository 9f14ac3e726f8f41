"""The waiting room: messages that are locked because their destination cannot take them now.

They stay locked, so that the next read reaches what is behind them. While a destination waits,
newer messages for it join the room, so that none overtakes. When its back-off has passed, the
oldest message is given back to the queue as a probe; the next micro-batch receives it, and it alone
may be sent. If it is taken, everything is given back, newest first, and the destination is open
again; if not, the back-off doubles. The primary as a whole is the destination `*`, with one
difference: nothing is read while it waits, and then everything is given back at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pairbus.syphon.backoff import Backoff, judge

__all__ = ["EVERYTHING", "Held", "WaitingRoom"]

#: The destination that stands for the primary as a whole.
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Held:
    """One message in the room."""

    queue: str
    token: str
    sequence: int
    destination: str
    locked_until: float


@dataclass(slots=True)
class _Destination:
    """Why and until when a destination waits."""

    condition: str
    failures: int
    until: float
    probe: tuple[str, int] | None = None
    probed_at: float = 0.0
    held: dict[str, Held] = field(default_factory=dict)


class WaitingRoom:
    """Who waits, for whom, and what to do about it. Time is an argument; nothing here acts."""

    def __init__(
        self,
        *,
        destination: Backoff | None = None,
        primary: Backoff | None = None,
        probe_patience: float = 60.0,
    ) -> None:
        self._backoff = destination or Backoff()
        self._primary = primary or Backoff(first=2.0, most=60.0)
        self._patience = probe_patience
        self._rooms: dict[str, _Destination] = {}

    def __len__(self) -> int:
        return sum(len(room.held) for room in self._rooms.values())

    def count(self, destination: str) -> int:
        """Messages that wait for this destination."""
        room = self._rooms.get(destination)
        return len(room.held) if room else 0

    def failed(self, destination: str, condition: str, now: float) -> None:
        """A destination (or `*`) refused: back off, longer each time in a row."""
        room = self._rooms.get(destination)
        failures = room.failures + 1 if room else 1
        if room and now < room.until and room.probe is None:
            return  # several tasks tell of the same failure
        backoff = self._primary if destination == EVERYTHING else self._backoff
        until = now + backoff.delay(failures, at_least=judge(condition).wait)
        if room:
            room.condition, room.failures, room.until, room.probe = condition, failures, until, None
        else:
            self._rooms[destination] = _Destination(condition, failures, until)

    def hold(self, messages: Iterable[Held], now: float) -> None:
        """Put messages into the room of their destination."""
        for held in messages:
            room = self._rooms.get(held.destination)
            if room is None:  # it opened while the task ran: due at once
                room = self._rooms[held.destination] = _Destination("", 0, now)
            room.held[held.token] = held

    def delivered(self, destinations: Iterable[str]) -> list[Held]:
        """Destinations took a message: what waited for them may go, newest first."""
        free: list[Held] = []
        for destination in destinations:
            room = self._rooms.pop(destination, None)
            if room:
                free.extend(room.held.values())
        return _newest_first(free)

    def due(self, now: float) -> list[Held]:
        """What to give back to the queues now, newest first: probes, and freed messages."""
        free: list[Held] = []
        for destination, room in list(self._rooms.items()):
            if now < room.until:
                continue
            if destination == EVERYTHING:
                free.extend(room.held.values())
                room.held.clear()
                if now >= room.until + self._patience:  # long past: the next failure is a first one
                    del self._rooms[destination]
                continue
            if not room.held:
                if room.probe is None or now >= room.probed_at + self._patience:
                    del self._rooms[destination]
                continue
            if room.probe is not None and now < room.probed_at + self._patience:
                continue
            oldest = min(room.held.values(), key=lambda held: (held.sequence, held.queue))
            del room.held[oldest.token]
            room.probe, room.probed_at = (oldest.queue, oldest.sequence), now
            free.append(oldest)
        return _newest_first(free)

    def renewals(self, now: float, *, lock: float) -> dict[str, list[str]]:
        """Tokens by queue whose lock has less than half of its `lock` seconds left."""
        wanted: dict[str, list[str]] = {}
        for room in self._rooms.values():
            for held in room.held.values():
                if held.locked_until - now < lock / 2:
                    wanted.setdefault(held.queue, []).append(held.token)
        return wanted

    def renewed(self, tokens: Sequence[str], until: float) -> None:
        """These locks now last until then."""
        wanted = set(tokens)
        for room in self._rooms.values():
            for token in wanted & room.held.keys():
                old = room.held[token]
                room.held[token] = Held(old.queue, token, old.sequence, old.destination, until)

    def lost(self, tokens: Iterable[str]) -> None:
        """These locks are gone: the queue gives the messages out again by itself."""
        gone = set(tokens)
        for room in self._rooms.values():
            for token in gone & room.held.keys():
                del room.held[token]

    def everything(self) -> list[Held]:
        """All that is held, newest first (to be given back when the syphon stops)."""
        return _newest_first([held for room in self._rooms.values() for held in room.held.values()])

    def paused_until(self) -> float:
        """Until when nothing may be read because the whole primary waits; 0 when it does not."""
        room = self._rooms.get(EVERYTHING)
        return room.until if room else 0.0

    def succeeded(self, now: float) -> None:
        """Something was delivered: the primary works again."""
        room = self._rooms.get(EVERYTHING)
        if room and now >= room.until and not room.held:
            del self._rooms[EVERYTHING]

    def blocked(self) -> dict[str, tuple[str, int] | None]:
        """Destinations that wait, each with the one message (queue, sequence) that may try."""
        return {name: room.probe for name, room in self._rooms.items() if name != EVERYTHING}

    def reasons(self) -> Mapping[str, str]:
        """Why each destination waits."""
        return {name: room.condition for name, room in self._rooms.items()}


def _newest_first(messages: list[Held]) -> list[Held]:
    return sorted(messages, key=lambda held: (held.queue, -held.sequence))
