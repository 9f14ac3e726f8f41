"""Write the table of the longest durations of a call into the docs, from the table of the tests."""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path("docs/topics/limits-of-calls.inc")


@dataclass(frozen=True)
class Defaults:
    """The default times, in seconds."""

    send_timeout: float = 30.0
    open_timeout: float = 5.0


def outputs() -> dict[Path, str]:
    """The page fragment with the table."""
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from simulation.limits import LIMITS

    lines = [
        "<!-- written from simulation/limits.py by tools/gen_limits.py -->",
        "",
        "| | At most | At the defaults |",
        "|---|---|---|",
    ]
    lines += [
        f"| {limit.situation} | {limit.formula} | {limit.seconds(Defaults()):g} s |"
        for limit in LIMITS
    ]
    return {TARGET: "\n".join(lines) + "\n"}
