"""The SDK's tests also pass under the oldest azure-servicebus that pairbus supports."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSION = "7.14.3"
PYTHON = ROOT / f".venv-sdk-{VERSION}" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.long
def test_the_sdk_tests_pass_under_the_oldest_sdk() -> None:
    if not PYTHON.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{PYTHON.parent.parent.name} is missing: run `make test`")
        pytest.skip(f"{PYTHON.parent.parent.name} is missing: `make test` makes it")
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [
            PYTHON,
            "-m",
            "pytest",
            "tests/broker/sdk",
            "tests/broker/admin",
            "-q",
            "-m",
            "sdk",
            "-n",
            "4",
            "--dist",
            "loadfile",
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    found = subprocess.run(
        [PYTHON, "-c", "import azure.servicebus as s; print(s.__version__)"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.strip() == VERSION
