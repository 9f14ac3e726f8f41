"""Run all tests, so that the cores are busy and Spark's tests are not in each other's way.

Most tests wait for sockets and clocks and run beside each other. Those that start a Spark of their
own run one after the other, beside these. Those that share one Spark session, which takes a core by
itself, follow when the first are done.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable

PYTEST = [sys.executable, "-m", "pytest", "--durations", "15"]


class Strand:
    """Tests that run one after the other in the background; what they say is kept."""

    def __init__(self, marks: str, env: dict[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (until close)
        self._process = subprocess.Popen(
            [*PYTEST, "-m", marks], stdout=self._said, stderr=self._said, env=env
        )

    def ended(self) -> tuple[int, list[str]]:
        """Wait for the end, show what was said, and return the exit code and what failed."""
        code = self._process.wait()
        self._said.seek(0)
        return code, shown(self._said)

    def close(self) -> None:
        """Leave nothing behind."""
        self._process.terminate()
        self._process.wait()
        self._said.close()


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
    """Run all, show one after the other, name once more what failed, and fail if one did."""
    # Where CI is set, pytest shows a failure whole, and be it a million lines.
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    strands = [Strand("own_spark", env)]
    try:
        print("The tests with Spark run beside these; what they say comes after.", flush=True)
        command = [*PYTEST, "-n", jobs, "--dist", "loadfile", "-m", "not spark"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
        ) as others:
            assert others.stdout
            failed = shown(others.stdout)
        strands.append(Strand("spark and not own_spark", env))
        codes = [others.returncode]
        for strand in strands:
            print("Waiting for the tests with Spark.", flush=True)
            code, more = strand.ended()
            codes.append(code)
            failed += more
    finally:
        for strand in strands:
            strand.close()
    print("\n".join(["", "Failed:", *failed] if any(codes) else ["", "All passed."]))
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
