"""`make soak`: run a soak, or resume one."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from soak.processes import SoakError
from soak.report import render
from soak.run import Soak


def main() -> int:
    """Run a soak; 0 if nothing was found that must not be."""
    parser = argparse.ArgumentParser(
        prog="make soak ARGS=…",
        description="Real processes under load, and faults. The same command resumes it.",
    )
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="where it works")
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="of a new soak's plan")
    parser.add_argument("--gap", type=float, default=4.0, help="seconds between faults, about")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between sends")
    given = parser.parse_args()

    # As with Ctrl-C, no process stays behind.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def show(line: str) -> None:
        print(line, flush=True)

    try:
        result = Soak(
            given.folder,
            faults=given.faults,
            seed=given.seed,
            pause=given.pause,
            gap=given.gap,
            show=show,
        ).run()
    except SoakError as error:
        print(f"the soak cannot go on: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("interrupted; the same command resumes it", file=sys.stderr)
        return 130
    text = render(result, given.seed)
    (given.folder / "report.md").write_text(text)
    print(text)
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
