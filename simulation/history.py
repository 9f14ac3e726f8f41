"""What applications asked for, what arrived, and whether the two agree.

The words are Jepsen's. A send was *ok* or of *unknown* outcome. A message is *lost* if its send was
ok and it arrived nowhere; *unexpected* if nobody ever sent it; *duplicated* if it arrived more than
once; *recovered* if it arrived although its send was not ok.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Call:
    """One send."""

    message: str
    application: str
    began: float
    ended: float | None = None
    outcome: str = "unknown"

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
    undue: Sequence[str]  # duplicated, although no fault was near their send
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
) -> Verdict:
    """Compare the history with what arrived.

    Args:
        history: the sends.
        arrived: the messages found, one entry for each time.
        faults: when something was wrong.
        deadline: seconds that a send may take.
        aftermath: seconds after a fault in which it may still duplicate a message.
    """
    counts = Counter(arrived)
    calls = history.calls
    duplicated = [name for name, count in sorted(counts.items()) if count > 1]
    return Verdict(
        ok=sum(call.outcome == "ok" for call in calls.values()),
        lost=[name for name, call in calls.items() if call.outcome == "ok" and not counts[name]],
        unexpected=sorted(name for name in counts if name not in calls),
        duplicated=duplicated,
        undue=[
            name
            for name in duplicated
            if name in calls and not _is_near(calls[name], faults, aftermath)
        ],
        recovered=[name for name, call in calls.items() if call.outcome != "ok" and counts[name]],
        late=[name for name, call in calls.items() if call.seconds > deadline],
    )


def _is_near(call: Call, faults: Sequence[Window], aftermath: float) -> bool:
    ended = NEVER if call.ended is None else call.ended
    return any(fault.began <= ended and call.began <= fault.ended + aftermath for fault in faults)


NEVER = float("inf")
