"""A broker for clients of other languages and libraries, and what those need to run."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbus import broker

JAVASCRIPT = Path(__file__).parent / "javascript"

Node = Callable[[str, str], None]
"""Runs one scenario of a script, and fails with its output."""


@pytest.fixture(scope="module")
def ns() -> Iterator[Any]:
    with broker.run() as running:
        yield running


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The packages of package-lock.json, installed once; skips where Node.js is missing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("LEFT OUT: clients in JavaScript need node and npm on this machine")
    installed = JAVASCRIPT / "node_modules" / ".package-lock.json"
    lock = JAVASCRIPT / "package-lock.json"
    with lock.open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=JAVASCRIPT, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"LEFT OUT: npm cannot install the clients: {done.stderr[-500:]}")
            os.utime(installed)
    return JAVASCRIPT / "node_modules"


@pytest.fixture
def node(ns: Any, node_modules: Path) -> Node:
    credential = ns.credential()
    environment = {
        "PATH": os.environ["PATH"],
        "CONNECTION_STRING": ns.connection_string,
        "HOST": f"127.0.0.1:{ns.port}",
        "TOKEN": credential.get_token("https://servicebus.azure.net/.default").token,
        "NODE_EXTRA_CA_CERTS": str(ns.certificate),
    }

    def run(script: str, scenario: str) -> None:
        done = subprocess.run(
            ["node", script, scenario],
            cwd=JAVASCRIPT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            pytest.fail(f"{script} {scenario}:\n{done.stdout}{done.stderr}", pytrace=False)

    return run
