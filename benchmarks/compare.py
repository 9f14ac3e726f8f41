"""Measure two checkouts in turns, each with its own code and benchmarks: `--against PATH`.

A benchmark runs in a process of its own, in the checkout that it measures, so that whatever else
the machine does hits both alike. Each figure is the median of the rounds and stands beside the
other checkout's and their ratio; figures that only one of the two has are left out.
"""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
Figures = defaultdict[tuple[str, str], list[float]]  # by name and unit
TOLERANCE = 0.05  # a figure that is worse by more is marked


def compare(name: str, other: str | Path, rounds: int) -> Iterator[str]:
    """Yield `name ours unit, theirs, ratio` for each figure of one benchmark."""
    other = Path(other).resolve()
    python = other / ".venv" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{other} has no .venv: run `make setup` there")
    if not (other / "benchmarks" / f"{name}.py").exists():
        yield f"{name}: {other} does not have this benchmark"
        return
    ours: Figures = defaultdict(list)
    theirs: Figures = defaultdict(list)
    for number in range(rounds):
        turns = [(theirs, other, python), (ours, ROOT, Path(sys.executable))]
        for figures, folder, interpreter in turns if number % 2 else reversed(turns):
            for figure, value, unit in measured(interpreter, folder, name):
                figures[figure, unit].append(value)
    for (figure, unit), values in ours.items():
        if (figure, unit) in theirs:
            yield line(figure, unit, median(values), median(theirs[figure, unit]))


def measured(python: Path, folder: Path, name: str) -> Iterator[tuple[str, float, str]]:
    """The figures that a benchmark prints."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [python, "-m", "benchmarks", name],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    for text in done.stdout.splitlines():
        words = text.split()
        if len(words) == 3:
            try:
                yield words[0], float(words[1].replace(",", "")), words[2]
            except ValueError:
                continue  # a line of words, not a figure


def line(figure: str, unit: str, ours: float, theirs: float) -> str:
    """One figure of both, and whether ours is worse by more than the tolerance."""
    ratio = ours / theirs if theirs else float("nan")
    if unit.endswith("/s"):
        is_worse = ratio < 1 - TOLERANCE
    else:
        is_worse = unit != "ratio" and ratio > 1 + TOLERANCE
    mark = " worse" if is_worse else ""
    return f"{figure} {ours:g} {unit}, theirs {theirs:g}, ratio {ratio:.2f}{mark}"
