"""Measure: `python -m benchmarks [names…]` prints one line `name value unit` per figure.

A benchmark is a module of this folder with `run()`, which yields such lines (or prints them). Names
choose modules, by their start: `python -m benchmarks amqp broker_sdk`. `--against PATH` measures
another checkout in turns with this one (see `compare.py`).

They measure raw speed: brokers run as Premium namespaces, which do not throttle.
"""

import argparse
import importlib
import os
import sys
import traceback
from pathlib import Path

from benchmarks.compare import compare


def modules(wanted):
    names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    chosen = [name for name in names if not wanted or any(name.startswith(w) for w in wanted)]
    if not chosen:
        sys.exit(f"no such benchmark; there are: {', '.join(names)}")
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help="benchmarks, by the start of their names")
    parser.add_argument("--against", metavar="PATH", help="another checkout with a .venv")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each, with --against")
    arguments = parser.parse_args()
    os.environ.setdefault("PAIRBUS_BROKER_TIER", "premium")
    failed = 0
    for name in modules(arguments.names):
        run = getattr(importlib.import_module(f"benchmarks.{name}"), "run", None)
        if run is None:
            continue
        try:
            if arguments.against:
                lines = compare(name, arguments.against, arguments.rounds)
            else:
                lines = run() or ()
            for line in lines:
                print(line, flush=True)
        except Exception:
            failed += 1
            print(f"{name} failed:", file=sys.stderr)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
