"""Make a failing run smaller: leave out faults, as long as the run still fails in the same way.

Only the planned faults are left out, one half, one quarter, ... at a time (delta debugging); faults
of Spark and of applications are switched off together if the failure does not need them. The rest
of the run changes with its faults, so a smaller run is accepted if it shows the same kind of
problem, not the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

MOST_RUNS = 40


@dataclass(frozen=True)
class Choice:
    """Which of the faults that a seed draws take place.

    Attributes:
        faults: places of the planned faults, in the order of time; None for all.
        spark: whether Spark loses workers and drivers.
        applications: whether applications are killed and cancel sends.
    """

    faults: tuple[int, ...] | None = None
    spark: bool = True
    applications: bool = True

    def __str__(self) -> str:
        """The options of the command line that replay it."""
        words = []
        if self.faults is not None:
            words.append(f"--faults {','.join(map(str, self.faults)) or 'none'}")
        words += [] if self.spark else ["--no-spark-faults"]
        words += [] if self.applications else ["--no-application-faults"]
        return " ".join(words)


def shrink(count: int, fails: Callable[[Choice], bool], most: int = MOST_RUNS) -> Choice:
    """The smallest choice that was found to fail.

    Args:
        count: how many faults are planned.
        fails: runs a choice; whether it fails in the same way.
        most: runs to make at most.
    """
    left = most

    def try_it(choice: Choice) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(choice)

    best = Choice(tuple(range(count)))
    for simpler in (replace(best, spark=False), replace(best, applications=False)):
        merged = replace(
            best,
            spark=best.spark and simpler.spark,
            applications=best.applications and simpler.applications,
        )
        if try_it(merged):
            best = merged
    size = max(1, count // 2)
    while size and left > 0:
        for part in _parts(best.faults or (), size):
            rest = tuple(one for one in best.faults or () if one not in part)
            if try_it(replace(best, faults=rest)):
                best = replace(best, faults=rest)
        size //= 2
    return best


def _parts(items: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]
