"""`pairbus broker run` as a process: its ready line, its end, and its one-line errors."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from click.testing import CliRunner

from pairbus.cli.main import cli

pytestmark = pytest.mark.slow


def start(*arguments: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-m", "pairbus", "broker", "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def fails(*arguments: str) -> str:
    """The error of a broker that does not start, in this process: a new one takes a second."""
    result = CliRunner().invoke(cli, ["broker", "run", *arguments])
    assert result.exit_code != 0
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


def test_it_says_when_it_is_ready_serves_and_ends_on_sigterm(tmp_path: Path) -> None:
    entities = tmp_path / "Config.json"
    entities.write_text(
        json.dumps({"UserConfig": {"Namespaces": [{"Name": "x", "Queues": [{"Name": "orders"}]}]}})
    )
    data = tmp_path / "data"
    options = ["--port", "0", "--data", str(data), "--entities", str(entities), "--json"]
    for expected in ([], ["kept"]):
        with start(*options) as process:
            ready = json.loads(process.stdout.readline())
            assert ready["namespace"] == "contoso"
            assert ready["pid"] == process.pid
            text = ready["connection_string"]
            assert f"sb://127.0.0.1:{ready['port']};" in text
            client = ServiceBusClient.from_connection_string(text, retry_total=0)
            with client, client.get_queue_receiver("orders") as receiver:
                assert [str(m) for m in receiver.peek_messages(5)] == expected
                with client.get_queue_sender("orders") as sender:
                    sender.send_messages(ServiceBusMessage("kept"))
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=300)
            assert (process.returncode, out, err) == (0, "", "")


def test_the_ready_line_for_people_has_the_connection_string_but_not_your_key() -> None:
    with start("--port", "0", "--memory") as process:
        line = process.stdout.readline()
        assert line.startswith("ready: Endpoint=sb://127.0.0.1:")
        assert "UseDevelopmentEmulator=true" in line
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    with start("--port", "0", "--key", "my-own-key") as process:
        assert "my-own-key" not in process.stdout.readline()
        process.terminate()
        assert process.wait(30) == 0


def test_a_broker_that_does_not_start_leaves_the_signals_of_the_process_as_they_were() -> None:
    ends = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in ends]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fails("--port", str(taken.getsockname()[1]))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint(ends)
    assert [signal.getsignal(number) for number in ends] == before


def test_what_cannot_work_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is in use" in fails("--port", port)
    assert "a key of your own is needed" in fails("--port", "0", "--host", "0.0.0.0")
    assert "exclude each other" in fails("--memory", "--data", str(tmp_path))
    bad = tmp_path / "bad.json"
    bad.write_text('{"Namespaces": [{"Name": "n", "Queues": [{"Name": "a b"}]}]}')
    assert "Queues[0]" in fails("--port", "0", "--entities", str(bad))
    assert "cannot be read" in fails("--port", "0", "--entities", str(tmp_path / "none"))
    with start("--port", "0", "--data", str(tmp_path / "d"), "--json") as process:
        process.stdout.readline()
        assert "in use by another broker" in fails("--port", "0", "--data", str(tmp_path / "d"))
        process.terminate()
