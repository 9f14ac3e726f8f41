"""Draw the state diagrams of an entity's health from the code, into the docs.

`step` is a function, so it is called with every phase and every fact; what it answers is the
picture. It can never be out of date. One diagram has what happens by itself, the other what an
operator does.
"""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path("docs/topics/health-states.inc")
OPERATOR = {
    "BacklogForced": "force_failover()",
    "PrimaryForced": "force_primary()",
    "Released": "release()",
    "DrainEnded": "end_draining()",
}

Arrows = dict[tuple[str, str], list[str]]


def _name(health: Any) -> str:
    if health.forced:
        return f"Forced{health.forced.title()}"
    phase: str = health.phase.name.title().replace("_", "")
    return "Refused" if health.refused else phase


def _words(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def arrows() -> tuple[Arrows, Arrows]:
    """All changes of state with their labels: by themselves, and by an operator."""
    sys.path.insert(0, str(ROOT / "src"))
    from pairbus.pairing.core import health as core
    from pairbus.pairing.core.timing import Timing

    default = Timing(
        failover_interval=60.0, ping_primary_interval=60.0, send_timeout=30.0, backlog_cooldown=60.0
    )
    facts: list[core.Fact] = [
        core.SendFailed("x"),
        core.TimerFired(),
        core.SendSucceeded(),
        core.PingSucceeded(),
        core.PingFailed("x"),
        core.PingRefused("x"),
        core.BacklogForced(),
        core.PrimaryForced(),
        core.Released(),
        core.BacklogDrained(),
        core.DrainEnded(),
    ]
    seen, todo = set(), [core.Health()]
    automatic: Arrows = {}
    operators: Arrows = {}
    while todo:
        health = todo.pop(0)
        start = _name(health)
        if start in seen:
            continue
        seen.add(start)
        for times, now, note in (
            (default, 1000.0, ""),
            (default, 2000.0, "interval elapsed"),
            (replace(default, failover_interval=0.0), 1000.0, "send failed, interval is 0"),
            (replace(default, drains_first=True), 1000.0, "primary is back, drain first"),
        ):
            told = set(automatic)
            for fact in facts:
                after, _ = core.step(health, fact, now=now, options=times)
                end, kind = _name(after), type(fact).__name__
                if end == start:
                    continue
                todo.append(after)
                if kind in OPERATOR:
                    labels = operators.setdefault((start, end), [])
                    label = OPERATOR[kind]
                else:
                    if (start, end) in told:
                        continue  # the same change at another time
                    labels = automatic.setdefault((start, end), [])
                    label = note or _words(kind)
                if label not in labels:
                    labels.append(label)
    return automatic, operators


def draw() -> tuple[str, str, str]:
    """What happens by itself, what `drain_first` adds, what an operator does: as Mermaid."""
    automatic, operators = arrows()
    states = {name for ends in automatic for name in ends}
    forced = {end for _, end in operators} - states
    by_hand = {
        (start, end): labels
        for (start, end), labels in operators.items()
        if start in forced or end not in forced
    }
    for end in sorted(forced):
        everywhere = [operators[start, end] for start in sorted(states)]
        if any(labels != everywhere[0] for labels in everywhere):
            raise SystemExit(f"not every state can become {end}: the diagram must say which")
        by_hand["AnyState", end] = everywhere[0]
    draining = {ends: labels for ends, labels in automatic.items() if "Draining" in ends}
    others = {ends: labels for ends, labels in automatic.items() if ends not in draining}
    return _diagram(others), _diagram(draining), _diagram(by_hand)


def _diagram(shown: Arrows) -> str:
    names = dict.fromkeys(name for ends in shown for name in ends)
    lines = ["stateDiagram-v2", "    direction TB"]
    lines += [f'    state "{_words(name)}" as {name}' for name in names]
    if "Suspect" in names:
        lines.append("    [*] --> Healthy")
    for (start, end), labels in shown.items():
        label = "<br>".join(
            textwrap.wrap(_joined(labels), 16, break_long_words=False)
        )  # for phones
        lines.append(f"    {start} --> {end}: {label}")
    return "\n".join(lines)


def _joined(labels: list[str]) -> str:
    """Labels of one arrow: `send succeeded`, `ping succeeded` are `send or ping succeeded`."""
    first, *rest = labels
    if rest and all(label.split()[-1] == first.split()[-1] for label in rest):
        return " or ".join(label.rsplit(" ", 1)[0] for label in labels) + f" {first.split()[-1]}"
    return " or ".join(labels)


def outputs() -> dict[Path, str]:
    """The page fragment with the diagrams."""
    automatic, draining, operators = draw()
    return {
        TARGET: (
            "<!-- drawn from src/pairbus/pairing/core/health.py by tools/gen_states.py -->\n\n"
            f"```mermaid\n{automatic}\n```\n\n"
            'With `recovery="drain_first"`, an entity drains before it is healthy again:\n\n'
            f"```mermaid\n{draining}\n```\n\n"
            "An operator can override the state of an entity from any of these states:\n\n"
            f"```mermaid\n{operators}\n```\n"
        )
    }
