"""Run one seed. In a module of its own, which the processes of a campaign can import."""

from __future__ import annotations

from functools import partial

import simulation
from simulation.judgement import Report
from simulation.pair import run_pair
from simulation.shrink import Choice


def run_one(seed: int, choice: Choice | None = None) -> Report | str:
    """The report of one seed, or how it failed."""
    try:
        return simulation.run(partial(run_pair, choice=choice), seed)[0]
    except Exception as error:  # noqa: BLE001 - a run that cannot be judged is a failed run
        return f"seed {seed}: {type(error).__name__}: {error}"
