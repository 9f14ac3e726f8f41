"""Run seeds: `python -m simulation --seeds 1:100`, or replay one with its timeline: `--seed 17`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import simulation
from simulation.pair import Report, run_pair


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", default="1:20", help="first:last, both included")
    parser.add_argument("--seed", type=int, help="one seed, with its timeline")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run seeds")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        return replay(options.seed)
    first, _, last = options.seeds.partition(":")
    return run_many(range(int(first), int(last or first) + 1), options.jobs)


def replay(seed: int) -> int:
    """Run one seed and print what happened."""
    outcome = run_one(seed)
    if isinstance(outcome, str):
        print(outcome)
        return 1
    for line in outcome.timeline:
        print(line)
    print(_line(outcome))
    for problem in outcome.problems:
        print(f"  {problem}")
    return 1 if outcome.problems else 0


def run_one(seed: int) -> Report | str:
    """The report of one seed, or how it failed."""
    try:
        return simulation.run(run_pair, seed)[0]
    except Exception as error:  # noqa: BLE001 - a run that cannot be judged is a failed run
        return f"seed {seed}: {type(error).__name__}: {error}"


def run_many(seeds: range, jobs: int) -> int:
    """Run seeds side by side; print those that failed, and a summary."""
    began = time.monotonic()
    strikes: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    failed: list[int] = []
    with ProcessPoolExecutor(jobs) as pool:
        for seed, outcome in zip(seeds, pool.map(run_one, seeds), strict=True):
            if isinstance(outcome, str) or outcome.problems:
                failed.append(seed)
                print(outcome if isinstance(outcome, str) else _line(outcome), flush=True)
                print(f"  replay: python -m simulation --seed {seed}", flush=True)
            if not isinstance(outcome, str):
                strikes += outcome.strikes
                totals["messages"] += outcome.messages
                totals["failovers"] += outcome.failovers
                totals["redirected"] += outcome.redirected
                totals["duplicated"] += len(outcome.verdict.duplicated)
    print(f"{len(seeds)} runs in {time.monotonic() - began:.0f} s, {len(failed)} failed: {failed}")
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    for (kind, phase), count in sorted(strikes.items()):
        print(f"  {kind:<12} while {phase:<12} {count}")
    return 1 if failed else 0


def _line(report: Report) -> str:
    found = "; ".join(report.problems) or "kept every promise"
    return (
        f"seed {report.seed}: {report.messages} messages in {report.seconds:.0f} s, "
        f"{report.failovers} failovers, {report.redirected} redirected: {found}"
    )


if __name__ == "__main__":
    sys.exit(main())
