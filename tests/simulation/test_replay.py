"""A seed gives the same trace in every process, whatever its hash seed is."""

import os
import subprocess
import sys

import pytest

from simulation.planted import ROOT


def trace_of(seed, hash_seed):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "simulation", "--seed", str(seed)],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}/src"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_trace_of_a_seed_is_the_same_in_every_process():
    one, other = trace_of(2, "0"), trace_of(2, "1")
    assert one.startswith("  trace ")
    assert one == other
