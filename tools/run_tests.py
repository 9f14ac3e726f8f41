"""Run the tests so that two cores stay busy: `run_tests.py [--all] JOBS`.

Most tests wait for sockets and timers, so JOBS of them run side by side. The tests with Spark run
beside these in a process of their own, one after the other: first those that share one Spark
session, then those that start Spark in processes of their own. They take longest and use little
more than one core, so the others give way to them. Without `--all`, tests marked `long` are left
out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

PYTEST = [sys.executable, "-m", "pytest", "--durations", "15"]
GIVE_WAY = ["nice", "-n", "4"]


class BackgroundRun:
    """A pytest process whose output is kept until it is asked for."""

    def __init__(self, marks: str, env: dict[str, str]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (until close)
        self._process = subprocess.Popen(
            [*PYTEST, "-m", marks], stdout=self._output, stderr=self._output, env=env
        )

    def result(self) -> tuple[int, list[str]]:
        """Wait for the end, print the output, and return the exit code and the failures."""
        code = self._process.wait()
        self._output.seek(0)
        return code, print_output(self._output)

    def close(self) -> None:
        """Stop the process and drop its output."""
        self._process.terminate()
        self._process.wait()
        self._output.close()


def print_output(lines: Iterable[bytes]) -> list[str]:
    """Print pytest's output; return the lines of its summary that name a failure."""
    failed = []
    for line in lines:
        text = line.decode(errors="replace").rstrip("\n")
        print(text, flush=True)
        if text.startswith(("FAILED tests", "ERROR tests")):  # not the captured log lines
            failed.append(text)
    return failed


def main() -> int:
    """Run everything, repeat at the end what failed, and exit non-zero if anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="run the tests marked `long` too")
    parser.add_argument("jobs", help="how many tests without Spark run side by side")
    arguments = parser.parse_args()
    chosen = "" if arguments.all else " and not long"
    # Where CI is set, pytest prints the difference of a failed comparison in full, even if it has a
    # million lines.
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    started = time.monotonic()
    background = BackgroundRun("spark" + chosen, env)
    try:
        print("The tests with Spark run beside these; their output follows.", flush=True)
        command = [
            *GIVE_WAY, *PYTEST, "-n", arguments.jobs, "--dist", "loadfile",
            "-m", "not spark" + chosen,
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
        ) as foreground:
            assert foreground.stdout
            failed = print_output(foreground.stdout)
        print("Waiting for the tests with Spark.", flush=True)
        code, more = background.result()
        failed += more
        codes = [foreground.returncode, code]
    finally:
        background.close()
    print("\n".join(["", "Failed:", *failed] if any(codes) else ["", "All passed."]))
    print(f"Tests took {time.monotonic() - started:.0f} s.")
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
