"""Pairing also works on the oldest azure-servicebus that pairbus supports."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-sdk-7.14.3" / "bin" / "python"
CHOSEN = (
    "every_form or split or detached or in_flight or says_nothing or half_way or as_before"
    " or hangs_up or private_name"
)
FOLDERS = (
    "tests/pairing/_sync",
    "tests/pairing/_async",
    "tests/pairing/sdk",
)
#: These need pyarrow, which is not installed there.
LEFT_OUT = tuple(
    f"--ignore-glob=*/test_{name}.py"
    for name in ("coalescing", "drain_first", "order_across_outages")
)


@pytest.mark.slow
@pytest.mark.long
def test_pairing_works_on_the_oldest_sdk():
    if not PYTHON.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{PYTHON.parent.parent.name} is missing: run `make test`")
        pytest.skip(f"{PYTHON.parent.parent.name} is missing: `make test` makes it")
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [PYTHON, "-m", "pytest", *FOLDERS, *LEFT_OUT, "-q", "-k", CHOSEN, "-n", "2"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=560,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
