"""A new user's walk through the tutorial: each command as it is printed."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TUTORIAL = ROOT / "docs" / "tutorial" / "index.md"

PREAMBLE = """
set -eu
ready() {  # what the reader sees in the terminal: it is ready
  for _ in $(seq 300); do (exec 3<>/dev/tcp/127.0.0.1/$1) 2>/dev/null && return; sleep 0.1; done
  echo "nothing listens on $1"; exit 1
}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def script() -> str:
    """The tutorial's commands, after `make demo`, as one script; ports that are free here."""
    blocks = re.findall(r"```sh\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    text = "\n".join(block for block in blocks if "make demo" not in block)
    for port in ("5672", "5673", "8666"):
        text = text.replace(port, str(free_port()))
    lines = []
    for line in text.splitlines():
        if "<<" not in line and line.strip() and not line.startswith(("{", "END", "export")):
            lines.append("echo '$ '" + repr(line).replace("$", "\\$"))
        # The check is a warning at that time, and the text says so.
        lines.append(line + " || test $? = 1" if line.startswith("pairbus check") else line)
        if line.endswith("&"):
            lines.append("ready " + re.findall(r"--port (\d+)", line)[0])
    return PREAMBLE + "\n".join(lines)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_works_as_printed(tmp_path):
    shutil.copy(ROOT / "examples" / "shop.py", tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {key: v for key, v in os.environ.items() if not key.startswith("PAIRBUS_")}
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            ["bash", "-c", script()],
            cwd=tmp_path,
            env={**environment, "PATH": path},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(580)
        finally:
            # What a failing script left behind is in its own process group.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    text = log.read_text()
    assert code == 0, text
    assert "order 3 taken, orders is healthy" in text
    assert "order 5 taken, orders is failed_over" in text
    assert "pairbus WARNING" in text
    assert "none lost" in text
    assert "Live page: http://127.0.0.1:" in text


def test_tutorial_shows_every_step():
    text = TUTORIAL.read_text()
    for command in ("pair create", "backlog list", "syphon run", "reconcile", "cost report"):
        assert f"pairbus {command}" in text
