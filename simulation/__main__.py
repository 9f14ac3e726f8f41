"""Run seeds: `python -m simulation --seeds 1:100`, or replay one with its timeline: `--seed 17`.

A failing seed is made smaller, by leaving out faults that the failure does not need, and replayed
with its timeline; `--shrink` does the same for one seed.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from simulation.judgement import Report
from simulation.running import run_one
from simulation.shrink import Choice, shrink

PHASES = ("healthy", "failed over", "draining")
SHRUNK = 3  # failing seeds of a campaign that are made smaller
RUNS = 25  # of one process in a campaign
TABLE = Path(__file__).parents[1] / "docs" / "topics" / "fault-coverage.inc"


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 1 if a seed failed."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="1:20", help="first:last, both included")
    parser.add_argument("--seed", type=int, help="one seed, with its timeline")
    parser.add_argument("--shrink", action="store_true", help="with --seed: find fewer faults")
    parser.add_argument("--faults", help="with --seed: only these of its faults, or none: 0,3,4")
    parser.add_argument("--no-spark-faults", action="store_true", help="with --seed")
    parser.add_argument("--no-application-faults", action="store_true", help="with --seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run seeds")
    parser.add_argument("--write", action="store_true", help="write the table to the docs")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first failure")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    try:
        return _run(options)
    finally:
        logging.disable(logging.NOTSET)  # tests call this function


def _run(options: argparse.Namespace) -> int:
    if options.seed is not None:
        return _one_seed(options)
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last or first) + 1)
    write = options.write
    return run_many(seeds, options.jobs, until_failure=options.until_failure, write=write)


def _one_seed(options: argparse.Namespace) -> int:
    if options.shrink:
        return shrink_seed(options.seed)
    faults = None
    if options.faults is not None:
        faults = tuple(int(one) for one in options.faults.split(",") if one.strip().isdigit())
    choice = Choice(faults, not options.no_spark_faults, not options.no_application_faults)
    return replay(options.seed, choice)


def replay(seed: int, choice: Choice) -> int:
    """Run one seed and print what happened."""
    outcome = run_one(seed, choice)
    if isinstance(outcome, str):
        print(outcome)
        return 1
    for line in outcome.timeline:
        print(line)
    print(_line(outcome))
    print(f"  trace {outcome.digest}")
    for problem in outcome.problems:
        print(f"  {problem}")
    return 1 if outcome.problems else 0


def shrink_seed(seed: int) -> int:
    """Find a smaller run that fails as this seed does; print its timeline and how to replay it."""
    whole = run_one(seed)
    kinds = _kinds(whole)
    if not kinds:
        print(f"seed {seed} kept every promise")
        return 0
    count = len(whole.plan) if isinstance(whole, Report) else 20

    def fails(choice: Choice) -> bool:
        return bool(kinds & _kinds(run_one(seed, choice)))

    smallest = shrink(count, fails)
    replay(seed, smallest)
    print(f"seed {seed} fails with {len(smallest.faults or ())} of {count} faults; replay:")
    print(f"  python -m simulation --seed {seed} {smallest}", flush=True)
    return 1


def _kinds(outcome: Report | str) -> set[str]:
    """The kinds of problems, without the names of messages."""
    if isinstance(outcome, str):
        return {outcome.split(":")[1]}
    return {problem.partition(":")[0] for problem in outcome.problems}


def run_many(seeds: range, jobs: int, *, until_failure: bool = False, write: bool = False) -> int:
    """Run seeds side by side; print those that failed, and a summary."""
    began, count = time.monotonic(), 0
    strikes: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    failed: list[int] = []
    for seed, outcome in _outcomes(seeds, jobs):
        count += 1
        if count % 20 == 0:
            print(f"{count} runs after {time.monotonic() - began:.0f} s", flush=True)
        if isinstance(outcome, str) or outcome.problems:
            failed.append(seed)
            print(outcome if isinstance(outcome, str) else _line(outcome), flush=True)
            print(f"  replay: python -m simulation --seed {seed}", flush=True)
            if until_failure:
                return 1
        if not isinstance(outcome, str):
            strikes += outcome.strikes
            totals += _totals(outcome)
    seconds = time.monotonic() - began
    print(f"{count} runs in {seconds:.0f} s, {len(failed)} failed: {failed}")
    figures = ", ".join(f"{number:,} {name}" for name, number in totals.items())
    table = "\n".join(coverage(strikes))
    print(f"{figures}\n{table}")
    for seed in failed[:SHRUNK]:
        shrink_seed(seed)
    if write:
        first = f"Seeds {seeds[0]} to {seeds[-1]}: {figures}."
        TABLE.write_text(f"{first}\n\n{table}\n")
    return 1 if failed else 0


def _outcomes(seeds: range, jobs: int) -> Iterator[tuple[int, Report | str]]:
    if jobs < 2:
        yield from ((seed, run_one(seed)) for seed in seeds)
        return
    # The memory that each run leaves behind makes a process ever slower.
    # (An executor of Python 3.11 may stop working when it renews a process.)
    with multiprocessing.Pool(jobs, maxtasksperchild=RUNS) as pool:
        yield from zip(seeds, pool.imap(run_one, seeds), strict=True)


def _totals(report: Report) -> Counter[str]:
    return Counter(
        {
            "runs that count": int(report.counts),
            "with failover and drain": int(report.failovers > 0 and report.forwarded > 0),
            "messages": report.messages,
            "failovers": report.failovers,
            "redirected": report.redirected,
            "duplicated": len(report.verdict.duplicated),
            "recovered": len(report.verdict.recovered),
        }
    )


def coverage(strikes: Counter[tuple[str, str]]) -> list[str]:
    """How often each fault took effect in each phase, as a Markdown table."""
    lines = [f"| Fault | {' | '.join(PHASES)} |", "|---|---|---|---|"]
    for kind in sorted({kind for kind, _ in strikes}):
        cells = " | ".join(str(strikes[kind, phase]) for phase in PHASES)
        lines.append(f"| {kind} | {cells} |")
    return lines


def _line(report: Report) -> str:
    found = "; ".join(report.problems) or "kept every promise"
    return (
        f"seed {report.seed}: {report.messages} messages in {report.seconds:.0f} s, "
        f"{report.failovers} failovers, {report.redirected} redirected: {found}"
    )


def _fix_hash_seed() -> None:
    """Start again with a fixed hash seed: the order of sets is a part of a run."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    _fix_hash_seed()
    sys.exit(main())
