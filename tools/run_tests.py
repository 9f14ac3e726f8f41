"""Run all tests: those with Spark one at a time, beside the others.

Spark takes the cores by itself, so its tests must not run beside each other. The others mostly
wait for sockets and clocks, so that both together take hardly longer than one of them.
"""

import subprocess
import sys
import tempfile

SPARK = "spark or crash"


def main(jobs: str) -> int:
    """Run both, show one after the other, and fail if either failed."""
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryFile() as said:
        spark = subprocess.Popen(
            [*pytest, "-p", "no:cacheprovider", "-m", SPARK], stdout=said, stderr=said
        )
        try:
            print("The tests with Spark run beside these; what they say comes after.", flush=True)
            others = subprocess.call(
                [*pytest, "-n", jobs, "--dist", "loadfile", "-m", f"not ({SPARK})"]
            )
            print("Waiting for the tests with Spark.", flush=True)
            code = spark.wait()
        finally:
            spark.terminate()
            spark.wait()
            said.seek(0)
            print(said.read().decode(errors="replace"), flush=True)
    return others or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
