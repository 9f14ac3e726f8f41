"""Draw the state diagram of an entity's health from the code, into the docs.

`step` is a function, so it is called with every phase and every fact; what it answers is the
picture. It can never be out of date.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path("docs/topics/health-states.inc")


@dataclass(frozen=True)
class Times:
    """The default times, in seconds."""

    failover_interval: float = 60.0
    ping_primary_interval: float = 60.0


def _name(health: Any) -> str:
    if health.forced:
        return f"Forced{health.forced.title()}"
    phase: str = health.phase.name.title().replace("_", "")
    return phase + ("Refused" if health.refused else "")


def _words(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def draw() -> str:
    """The diagram, as Mermaid."""
    sys.path.insert(0, str(ROOT / "src"))
    from pairbus.pairing.core import health as core

    facts: list[core.Fact] = [
        core.SendSucceeded(),
        core.SendFailed("x"),
        core.TimerFired(),
        core.PingSucceeded(),
        core.PingFailed("x"),
        core.PingRefused("x"),
        core.BacklogForced(),
        core.PrimaryForced(),
        core.Released(),
    ]
    seen, todo = set(), [core.Health()]
    arrows: dict[tuple[str, str], list[str]] = {}
    while todo:
        health = todo.pop(0)
        if _name(health) in seen:
            continue
        seen.add(_name(health))
        told = set()
        for times, now, note in (
            (Times(), 1000.0, ""),
            (Times(), 2000.0, " after the interval"),
            (Times(failover_interval=0.0), 1000.0, " (interval 0)"),
        ):
            for fact in facts:
                after, commands = core.step(health, fact, now=now, options=times)
                what = (_name(after), type(fact))
                if _name(after) == _name(health) or what in told:
                    continue
                told.add(what)
                acts = ", ".join(_words(type(command).__name__) for command in commands)
                label = _words(type(fact).__name__) + note + (f" / {acts}" if acts else "")
                arrows.setdefault((_name(health), _name(after)), []).append(label)
                todo.append(after)
    lines = ["stateDiagram-v2", "    direction LR", "    [*] --> Healthy"]
    for (start, end), labels in arrows.items():
        lines += [f"    {start} --> {end}: {label}" for label in labels]
    return "\n".join(lines)


def outputs() -> dict[Path, str]:
    """The page fragment with the diagram."""
    return {
        TARGET: (
            "<!-- drawn from src/pairbus/pairing/core/health.py by tools/gen_states.py -->\n\n"
            f"```mermaid\n{draw()}\n```\n"
        )
    }
