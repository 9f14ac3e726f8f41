"""A broker for clients of other languages and libraries, and their installation.

The clients are installed once, into `.venv-clients` at the root of the repository. A client that
cannot be installed on a machine is skipped with a reason that starts with LEFT OUT.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbus import broker
from pairbus.broker.settings import DEFAULT_KEY_NAME, WELL_KNOWN_KEY

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
INSTALLED = ROOT / ".venv-clients"

Run = Callable[..., None]
"""Runs a script with arguments, and fails with its output."""


@pytest.fixture(scope="module")
def ns() -> Iterator[Any]:
    with broker.run() as running:
        running.create_queue("sessions", requires_session=True)
        yield running


@pytest.fixture
def run_client(ns: Any) -> Run:
    queue = f"queue-{uuid.uuid4()}"
    ns.create_queue(queue)
    environment = {
        "PATH": os.environ["PATH"],
        "CONNECTION_STRING": ns.connection_string,
        "HOST": f"127.0.0.1:{ns.port}",
        "KEY_NAME": DEFAULT_KEY_NAME,
        "KEY": WELL_KNOWN_KEY,
        "TOKEN": ns.credential().get_token("https://servicebus.azure.net/.default").token,
        "CERTIFICATE": str(ns.certificate),
        "NODE_EXTRA_CA_CERTS": str(ns.certificate),
        "QUEUE": queue,
        "SESSIONS": "sessions",
    }

    def run(*command: str, **more: str) -> None:
        done = subprocess.run(
            command, cwd=HERE, env=environment | more, capture_output=True, text=True, timeout=500
        )
        if done.returncode:
            pytest.fail(f"{' '.join(command)}:\n{done.stdout}{done.stderr}", pytrace=False)

    return run


@pytest.fixture
def node(run_client: Run, node_packages: Path) -> Run:
    def run(script: str, scenario: str) -> None:
        run_client("node", f"javascript/{script}", scenario, NODE_PATH=str(node_packages))

    return run


@pytest.fixture
def python(run_client: Run) -> Run:
    def run(package: str, script: str, scenario: str) -> None:
        folder = _python_package(package)
        run_client(sys.executable, script, scenario, PYTHONPATH=str(folder))

    return run


@pytest.fixture(scope="session")
def node_packages() -> Path:
    """The packages of package-lock.json."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("LEFT OUT: the clients in JavaScript need node and npm on this machine")
    folder = INSTALLED / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "javascript" / name, folder)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    lock = (HERE / "javascript" / "package-lock.json").read_text()
    _install("node", lock, command, folder)
    return folder / "node_modules"


def _python_package(name: str) -> Path:
    """A folder with one package and what it needs, for PYTHONPATH."""
    folder = INSTALLED / name
    pinned = ROOT / "requirements" / f"client-{name}.txt"
    uv = ROOT / ".venv" / "uv" / "bin" / "uv"
    if not uv.exists():
        pytest.skip(f"LEFT OUT: {name} is installed with uv, which `make setup` provides")
    command = [str(uv), "pip", "install", "--python", sys.executable, "--target", str(folder)]
    command += ["--require-hashes", "-r", str(pinned)]
    _install(name, pinned.read_text(), command, ROOT)
    return folder


def _install(name: str, content: str, command: list[str], folder: Path) -> None:
    """Install unless the same content was installed before; one process at a time."""
    INSTALLED.mkdir(exist_ok=True)
    stamp = INSTALLED / f"{name}.installed"
    with (INSTALLED / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == content:
            return
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"LEFT OUT: {name} cannot be installed: {done.stderr[-300:]}")
        stamp.write_text(content)
