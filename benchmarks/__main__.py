"""Measure: `python -m benchmarks [names…]` prints one line `name value unit` per figure.

A benchmark is a module of this folder with `run()`, which yields such lines (or prints them). Names
choose modules, by their start: `python -m benchmarks amqp broker_sdk`. `--against PATH` has those
that can do so (broker_sdk) measure another checkout side by side.

They measure raw speed: brokers run as Premium namespaces, which do not throttle.
"""

import argparse
import importlib
import os
import sys
import traceback
from pathlib import Path


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
    arguments = parser.parse_args()
    os.environ.setdefault("PAIRBUS_BROKER_TIER", "premium")
    if arguments.against:
        os.environ["PAIRBUS_BENCH_AGAINST"] = arguments.against
    failed = 0
    for name in modules(arguments.names):
        run = getattr(importlib.import_module(f"benchmarks.{name}"), "run", None)
        if run is None:
            continue
        try:
            for line in run() or ():
                print(line, flush=True)
        except Exception:
            failed += 1
            print(f"{name} failed:", file=sys.stderr)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
