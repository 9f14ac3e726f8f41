"""`pairbus dashboard` as a process, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from pairbus.cli.errors import ExitCode
from pairbus.cli.main import cli


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("PAIRBUS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def run(*args: str):
    return CliRunner().invoke(cli, ["dashboard", *args])


def test_page_needs_something_to_look_at():
    result = run()
    assert result.exit_code == ExitCode.USAGE
    assert "--ledger" in result.stderr


def test_other_address_is_refused_without_a_token(tmp_path):
    result = run("--ledger", str(tmp_path), "--host", "0.0.0.0")
    assert result.exit_code == ExitCode.USAGE
    assert "needs a token" in result.stderr


def test_short_token_is_refused(tmp_path):
    result = run("--ledger", str(tmp_path), "--host", "0.0.0.0", "--token", "abc")
    assert result.exit_code == ExitCode.USAGE
    assert "8 characters" in result.stderr


def test_port_in_use_is_told_in_one_line(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--ledger", str(tmp_path), "--port", str(port))
    assert result.exit_code == ExitCode.ERROR
    assert result.stderr == (
        f"pairbus: cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Try: another --host or --port\n"
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--port", "99999"), ExitCode.USAGE),
        (("--host", "no.such.host.invalid", "--token", "x" * 32), ExitCode.ERROR),
    ],
)
def test_address_that_cannot_be_is_told_in_one_line(tmp_path, options, code):
    result = run("--ledger", str(tmp_path), *options)
    assert result.exit_code == code
    assert result.stderr.count("\n") == 1
    assert "Unknown error" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_process_prints_its_link_serves_and_ends_with_a_signal(tmp_path, how):
    process = subprocess.Popen(
        [sys.executable, "-m", "pairbus", "dashboard", "--ledger", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert "?token=" in process.stdout.readline()
        with urllib.request.urlopen(url + "index.json", timeout=20) as answer:
            assert json.load(answer)["headline"] == "Nothing has reported yet"
        stream = urllib.request.urlopen(url + "stream", timeout=20)
        assert stream.readline().startswith(b"id: ")
        process.send_signal(how)  # with a stream open: it ends all the same
        process.wait(15)
        stream.close()
        rest = process.stdout.read()
        assert "Traceback" not in rest, rest
        if how is signal.SIGINT:  # Ctrl-C is how it is meant to end
            assert (process.returncode, "interrupted" in rest) == (0, False)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
