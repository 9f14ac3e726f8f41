"""The messages that applications sent and those that arrived, and whether the two agree.

The words are Jepsen's. A send was *ok*, *failed* before anything was sent, or its outcome is
*unknown*. A message is *lost* if its send was ok and it arrived nowhere; *unexpected* if nobody
ever sent it, or its send failed; *duplicated* if it arrived more than once; *recovered* if it
arrived although the outcome of its send was unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

NEVER = float("inf")


@dataclass
class Call:
    """The send of one message."""

    message: str
    application: str
    began: float
    ended: float | None = None
    outcome: str = "unknown"
    session: str | None = None
    life: int = 1
    """Which process of the application sent it: each has its own sender."""
    time_to_live: int | None = None
    """Milliseconds."""
    due: float | None = None
    """When a scheduled message is due, in seconds since 1970."""
    is_redirected: bool = False
    """The entity was failed over before and after the call."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return 0.0 if self.ended is None else self.ended - self.began


@dataclass(frozen=True)
class Window:
    """A time in which a fault was in force."""

    kind: str
    began: float
    ended: float
    side: str = "primary"

    def is_near(self, began: float, ended: float, aftermath: float) -> bool:
        """Whether it was in force between these times, or ended shortly before."""
        return self.began <= ended and began <= self.ended + aftermath


@dataclass
class History:
    """All sends of a run."""

    calls: dict[str, Call] = field(default_factory=dict)

    def begin(self, message: str, application: str, now: float) -> Call:
        """A send begins."""
        call = self.calls[message] = Call(message, application, now)
        return call


@dataclass(frozen=True)
class Verdict:
    """Whether a run kept its promises."""

    ok: int
    lost: Sequence[str]
    unexpected: Sequence[str]
    duplicated: Sequence[str]
    undue: Sequence[str]  # duplicated, although no fault was near
    recovered: Sequence[str]
    late: Sequence[str]  # sends that took longer than promised

    @property
    def problems(self) -> list[str]:
        """What must not be, in words."""
        return [
            f"{name}: {', '.join(found)}"
            for name, found in (
                ("lost", self.lost),
                ("unexpected", self.unexpected),
                ("duplicated without a fault", self.undue),
                ("beyond the deadline", self.late),
            )
            if found
        ]


def judge(
    history: History,
    arrived: Iterable[str],
    faults: Sequence[Window],
    *,
    deadline: float,
    aftermath: float,
    detected: Iterable[str] = (),
    settled_at: Mapping[str, float] | None = None,
) -> Verdict:
    """Compare the history with the messages that arrived.

    Args:
        history: the sends.
        arrived: the messages found, one entry for each time.
        faults: when something was wrong.
        deadline: seconds that a send may take.
        aftermath: seconds after a fault in which it may still duplicate a message.
        detected: messages whose destination detects duplicates: it may have none.
        settled_at: when a message last arrived; it was in flight until then.
    """
    counts = Counter(arrived)
    calls, never, last = history.calls, set(detected), settled_at or {}
    duplicated = [name for name, count in sorted(counts.items()) if count > 1]
    return Verdict(
        ok=sum(call.outcome == "ok" for call in calls.values()),
        lost=[name for name, call in calls.items() if call.outcome == "ok" and not counts[name]],
        unexpected=sorted(
            name for name in counts if name not in calls or calls[name].outcome == "failed"
        ),
        duplicated=duplicated,
        undue=[
            name
            for name in duplicated
            if name in calls
            and (name in never or not _is_near(calls[name], last.get(name), faults, aftermath))
        ],
        recovered=[
            name for name, call in calls.items() if call.outcome == "unknown" and counts[name]
        ],
        late=[name for name, call in calls.items() if call.seconds > deadline],
    )


def _is_near(
    call: Call, arrived_at: float | None, faults: Sequence[Window], aftermath: float
) -> bool:
    ended = NEVER if call.ended is None else max(call.ended, arrived_at or 0.0)
    return any(fault.is_near(call.began, ended, aftermath) for fault in faults)


def overtaken(
    history: History,
    backlog: Sequence[tuple[float, str, str]],
    primary: Sequence[tuple[float, str, str]],
    detecting: Container[str] = (),
) -> list[str]:
    """Messages that overtook an older one of the same backlog queue and destination.

    Only messages count that entered one backlog queue once and that the primary cannot have got
    directly: their send was redirected from beginning to end, or they arrived once. Where
    duplicates are detected, the one that arrived may be the direct one.

    Args:
        history: the sends.
        backlog: what the secondary took: when, which queue, which message, in this order.
        primary: what the primary took: when, which entity, which message, in this order.
        detecting: entities that detect duplicates.
    """
    entered, arrived = Counter(name for *_, name in backlog), Counter(name for *_, name in primary)
    first = {
        name: (place, entity) for place, (_, entity, name) in reversed(list(enumerate(primary)))
    }
    found: list[str] = []
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for _, queue, name in backlog:
        call = history.calls.get(name)
        if call is None or call.due is not None or entered[name] != 1 or name not in first:
            continue
        place, entity = first[name]
        if not call.is_redirected and (arrived[name] != 1 or entity in detecting):
            continue
        latest, before = newest.get((queue, entity), (-1, ""))
        if place < latest:
            found.append(f"{name} before {before}")
        else:
            newest[queue, entity] = place, name
    return found


def out_of_order(history: History, primary: Sequence[tuple[float, str, str]]) -> list[str]:
    """Messages that arrived before an older one of the same sender and session.

    This is the order that `recovery="drain_first"` promises. Only sends that were ok count, and
    only the first arrival of each message.

    Args:
        history: the sends, in order.
        primary: what the primary took: when, which entity, which message, in this order.
    """
    first: dict[str, int] = {}
    for place, (_, _, name) in enumerate(primary):
        first.setdefault(name, place)
    newest: dict[tuple[str, int, str | None], tuple[int, str]] = {}
    found: list[str] = []
    for name, call in history.calls.items():
        if call.outcome != "ok" or call.due is not None or name not in first:
            continue
        key = call.application, call.life, call.session
        latest, before = newest.get(key, (-1, ""))
        if first[name] < latest:
            found.append(f"{name} before {before}")
        else:
            newest[key] = first[name], name
    return found
