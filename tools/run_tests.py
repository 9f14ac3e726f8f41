"""Run all tests: those with Spark one at a time, beside the others.

Spark takes the cores by itself, so its tests must not run beside each other. The others mostly
wait for sockets and clocks, so that both together take hardly longer than one of them.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable

SPARK = "spark"


def shown(lines: Iterable[bytes]) -> list[str]:
    """Print what pytest says; the lines of its summary that name what failed."""
    failed = []
    for line in lines:
        text = line.decode(errors="replace").rstrip("\n")
        print(text, flush=True)
        if text.startswith(("FAILED ", "ERROR ")):
            failed.append(text)
    return failed


def main(jobs: str) -> int:
    """Run both, show one after the other, name once more what failed, and fail if either did."""
    pytest = [sys.executable, "-m", "pytest", "--durations", "15"]
    failed: list[str] = []
    # Where CI is set, pytest shows a failure whole, and be it a million lines.
    around = {name: value for name, value in os.environ.items() if name != "CI"}
    with tempfile.TemporaryFile() as said:
        spark = subprocess.Popen([*pytest, "-m", SPARK], stdout=said, stderr=said, env=around)
        try:
            print("The tests with Spark run beside these; what they say comes after.", flush=True)
            command = [*pytest, "-n", jobs, "--dist", "loadfile", "-m", f"not ({SPARK})"]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=around
            ) as others:
                assert others.stdout
                failed += shown(others.stdout)
            print("Waiting for the tests with Spark.", flush=True)
            spark.wait()
        finally:
            spark.terminate()
            spark.wait()
            said.seek(0)
            failed += shown(said)
    code = others.returncode or spark.returncode
    print("\n".join(["", "Failed:", *failed] if code else ["", "All passed."]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
