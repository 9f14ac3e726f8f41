"""A whole drill on embedded namespaces, and what it leaves behind: nothing."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from click.testing import CliRunner

from pairbus.broker.faults.proxy import FaultProxy
from pairbus.cli.errors import ExitCode
from pairbus.cli.main import cli
from pairbus.drill import canary
from pairbus.drill.account import Attempt, Outage
from pairbus.drill.arrivals import Arrivals
from pairbus.drill.drain import LocalSyphon
from pairbus.drill.drill import Drill
from pairbus.drill.outage import HostContext, gated_client
from pairbus.drill.settings import Settings
from pairbus.envelope.sdk import wrap
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.names import parse_connection_string
from tests.drill.conftest import BACKLOG, QUEUES, named

pytestmark = [pytest.mark.sdk, pytest.mark.slow, pytest.mark.timeout(240)]


def bodies(namespace, queue) -> list[str]:
    with namespace.client() as client, client.get_queue_receiver(queue) as receiver:
        return [str(message) for message in receiver.peek_messages(max_message_count=100)]


def store(sender, text: str, message_id: str, destination: str) -> None:
    """Put a message into a backlog queue, as a paired client does in an outage."""
    message = ServiceBusMessage(text, message_id=message_id)
    sender.send_messages(wrap(message, destination, now=int(time.time() * 1000)))


def queues_of(namespace) -> set[str]:
    with namespace.admin_client() as admin:
        return {queue.name for queue in admin.list_queues()}


def environment(world) -> dict[str, str]:
    return {
        "PAIRBUS_PRIMARY": world.primary.connection_string,
        "PAIRBUS_SECONDARY": world.secondary.connection_string,
        "PAIRBUS_PRIMARY_NAMESPACE": "contoso",
        "PAIRBUS_BACKLOG_QUEUE_COUNT": str(QUEUES),
    }


def test_healthy_pair_gets_a_clean_verdict_and_nothing_stays_behind(world):
    steps, announced = [], []
    settings = Settings(
        failover_interval=0.3, messages=3, syphon="here", notice=0.0, send_timeout=60.0
    )
    drill = Drill(world.pair, settings, steps.append, announced.append)
    report = drill.run()
    assert (report.verdict, named(report)) == ("ok", {})
    messages = report.messages
    # The last of the sends that wait for the failover may be the first in the backlog.
    assert messages.backlogged in (3, 4)
    assert messages.sent == messages.arrived == 6 + messages.backlogged
    assert messages.failed > 0  # until the interval had passed
    assert (messages.lost, messages.duplicated, messages.undrained) == ((), (), ())
    assert [step.name for step in steps] == [
        "check both namespaces",
        "send to the primary",
        "fail over",
        "send to the backlog",
        "fail back",
        "send to the primary again",
        "start a syphon",
        "drain",
        "clean up",
    ]
    assert announced == ["starting a syphon in this process, without Spark"]
    assert report.operations.send_primary == messages.sent  # the syphon sends the backlog
    assert report.operations.send_backlog == messages.backlogged
    assert report.cost.amount > 0
    assert report.outage_cost.operations > report.cost.operations
    assert queues_of(world.primary) == {"orders"}
    assert bodies(world.secondary, BACKLOG) == []


class Forwarding:
    """Arrivals while a syphon works: the message is forwarded after the first look at it."""

    def __init__(self):
        self.counts, self._looks = Counter(), 0

    def _look(self):
        self._looks += 1
        return self._looks > 1

    def update(self):
        self.counts["m"] = int(self._look())

    def in_backlog(self):
        return {} if self._look() else {"m": 0.0}


def test_message_that_is_forwarded_during_the_account_is_not_lost(world):
    drill = world.drill()
    drill._reconcile(  # noqa: SLF001 - a drill reaches it with a slow syphon only
        Forwarding(), Outage([Attempt("m", 0.0, is_ok=True)], backlogged={"m"})
    )
    messages = drill.report.messages
    assert (messages.arrived, messages.lost, messages.undrained) == (1, (), ())


def test_running_syphon_is_noticed(world, tmp_path):
    running = LocalSyphon(world.pair.syphon_options(checkpoint=str(tmp_path), long_poll=5.0))
    try:
        report = world.drill(syphon="running", drain_timeout=120.0).run()
    finally:
        running.stop()
    assert report.verdict == "ok"
    assert "a running syphon drained the backlog" in [f.what for f in report.findings]


def test_named_queue_is_only_peeked(world):
    report = world.drill(entities=("orders",)).run()
    assert named(report) == {}
    assert (
        len(bodies(world.primary, "orders")) == report.messages.sent
    )  # its consumers may have them
    assert queues_of(world.primary) == {"orders"}


def test_backlog_of_applications_is_neither_drained_nor_moved(world):
    with (
        world.secondary.client() as client,
        client.get_queue_sender(BACKLOG) as sender,
    ):
        store(sender, "an order", "1", "orders")
    report = world.drill().run()
    found = named(report)
    assert found["syphon"].startswith("critical: no syphon is running, and the backlog holds 1 or")
    assert bodies(world.secondary, BACKLOG) == ["an order"]
    assert bodies(world.primary, "orders") == []
    assert queues_of(world.primary) == {"orders"}


def test_drill_stays_away_from_an_outage_that_is_under_way(world):
    with world.secondary.client() as client, client.get_queue_sender(BACKLOG) as sender:
        sender.send_messages([ServiceBusMessage("an order") for _ in range(250)])
    report = world.drill().run()
    assert named(report) == {
        "backlog": "critical: the backlog holds 250 or more messages of applications"
    }
    assert report.messages.sent == 0
    assert queues_of(world.primary) == {"orders"}


def test_interrupted_drill_cleans_up(world):
    def interrupt(step) -> None:
        if step.name == "send to the backlog":
            raise KeyboardInterrupt

    drill = Drill(
        world.pair, Settings(failover_interval=0, messages=3, send_timeout=60.0), interrupt
    )
    with pytest.raises(KeyboardInterrupt):
        drill.run()
    assert queues_of(world.primary) == {"orders"}
    assert [bodies(world.secondary, BACKLOG[:-1] + str(n)) for n in range(QUEUES)] == [[], []]


def test_clean_removes_what_a_killed_drill_left_and_nothing_else(world, monkeypatch):
    run = canary.PREFIX + "0123abcd"
    canary.create(world.pair, run)
    with world.secondary.client() as client, client.get_queue_sender(BACKLOG) as sender:
        for number in range(2):
            store(sender, "mine", f"{run}-{number}", run)
            store(sender, f"an order {number}", f"order-{number}", "orders")
    assert "pairbus-drill-0123abcd" in world.findings()["leftovers"]
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(cli, ["drill", "clean", "--json"])
    assert result.exit_code == ExitCode.OK
    assert json.loads(result.output) == {"queues": [run], "messages": 2, "left": []}
    assert queues_of(world.primary) == {"orders"}
    assert bodies(world.secondary, BACKLOG) == ["an order 0", "an order 1"]


@pytest.mark.parametrize(
    ("rate", "size", "outage"),
    [("50", "2048", "7200"), ("50/s", "2KB", "2h"), ("3000/min", "2kb", "120m")],
)
def test_the_options_take_the_units_of_the_cost_estimate(monkeypatch, rate, size, outage):
    nowhere = "Endpoint=sb://nowhere.invalid/;SharedAccessKeyName=a;SharedAccessKey=b"
    monkeypatch.setenv("PAIRBUS_PRIMARY", nowhere)
    monkeypatch.setenv("PAIRBUS_SECONDARY", nowhere)
    command = ["drill", "--dry-run", "--rate", rate, "--size", size, "--outage", outage]
    result = CliRunner().invoke(
        cli, [*command, "--failover-interval", "1m", "--ping-interval", "60s"]
    )
    assert result.exit_code == ExitCode.OK
    assert "An outage of 2h 00m at 50 messages a second would add about" in result.output


def test_dry_run_contacts_nothing(monkeypatch):
    nowhere = "Endpoint=sb://nowhere.invalid/;SharedAccessKeyName=a;SharedAccessKey=b"
    monkeypatch.setenv("PAIRBUS_PRIMARY", nowhere)
    monkeypatch.setenv("PAIRBUS_SECONDARY", nowhere)
    result = CliRunner().invoke(cli, ["drill", "--dry-run", "--rate", "50"])
    assert result.exit_code == ExitCode.OK
    assert "cut this process's own connection to the primary" in result.output
    assert "An outage of 1h 00m at 50 messages a second would add about" in result.output


@pytest.mark.parametrize(
    ("option", "value", "match"),
    [
        ("--tier", "gold", "gold"),
        ("--rate", "-1", "'-1' is not a rate"),
        ("--ping-interval", "0", "ping_interval must be above 0"),
    ],
)
def test_setting_that_makes_no_sense_is_refused_before_the_drill(
    monkeypatch, world, option, value, match
):
    for name, text in environment(world).items():
        monkeypatch.setenv(name, text)
    result = CliRunner().invoke(cli, ["drill", "--checks-only", option, value])
    assert result.exit_code == ExitCode.USAGE
    assert match in result.output
    assert "check both namespaces" not in result.output


def test_tier_is_read_in_any_case(monkeypatch):
    nowhere = "Endpoint=sb://nowhere.invalid/;SharedAccessKeyName=a;SharedAccessKey=b"
    monkeypatch.setenv("PAIRBUS_PRIMARY", nowhere)
    monkeypatch.setenv("PAIRBUS_SECONDARY", nowhere)
    assert CliRunner().invoke(cli, ["drill", "--dry-run", "--tier", "Premium"]).exit_code == 0


def test_named_queue_is_cleaned_up_without_the_right_to_manage(world, monkeypatch):
    def refuse(_pair):
        raise ClientAuthenticationError("Manage claims required")

    monkeypatch.setattr(Pair, "primary_admin", refuse)
    report = world.drill(entities=("orders",)).run()
    assert report.messages.sent
    assert named(report) == {}


def test_command_reports_the_verdict_in_its_exit_code_and_as_json(world, monkeypatch):
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(cli, ["drill", "--checks-only"])
    assert result.exit_code == ExitCode.OK
    assert "pairbus drill OK" in result.output
    world.replace_backlog_queue(requires_session=True)
    result = CliRunner().invoke(cli, ["drill", "--checks-only", "--json"])
    assert result.exit_code == ExitCode.CRITICAL
    answer = json.loads(result.output)
    assert answer["verdict"] == "critical"
    (found,) = [f for f in answer["findings"] if f["check"] == "backlog sessions"]
    assert found["remedy"].endswith("`pairbus pair create`")


def test_gate_does_not_weaken_tls(world):
    """Through the gate, the server must still show the certificate of the namespace's host."""
    parts = parse_connection_string(world.primary.connection_string)
    context = HostContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(world.primary.certificate)
    context.host = "contoso.servicebus.windows.net"
    with (
        FaultProxy(world.primary.connection_string) as gate,
        socket.create_connection((gate.host, gate.port)) as raw,
        pytest.raises(ssl.SSLCertVerificationError, match=r"contoso\.servicebus\.windows\.net"),
    ):
        context.wrap_socket(raw, server_hostname="127.0.0.1")
    context.host = parts.host
    with (
        FaultProxy(world.primary.connection_string) as gate,
        socket.create_connection((gate.host, gate.port)) as raw,
        context.wrap_socket(raw, server_hostname="anything") as wrapped,
    ):
        assert wrapped.version() in ("TLSv1.2", "TLSv1.3")
    azure = Endpoint(
        "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b"
    )
    with FaultProxy("127.0.0.1:5671") as gate:
        gated_client(azure, gate).close()


@pytest.mark.long
@pytest.mark.spark
def test_drill_drains_with_spark(world):
    environ = {**os.environ, **environment(world)}
    done = subprocess.run(
        [sys.executable, "-m", "pairbus", "drill", "--syphon", "spark", "--json"],
        env=environ, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "ok")
    assert report["messages"]["arrived"] == report["messages"]["sent"] >= 60


@pytest.mark.long
@pytest.mark.crash
def test_clean_after_kill_9(world, monkeypatch):
    environ = {**os.environ, **environment(world)}
    drill = subprocess.Popen(
        [sys.executable, "-u", "-m", "pairbus", "drill", "--syphon", "running"],
        env=environ, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in drill.stdout:
        if "send to the primary again" in line:
            break
    drill.send_signal(signal.SIGKILL)
    drill.wait()
    drill.stdout.close()
    assert len(queues_of(world.primary)) == 2
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(cli, ["drill", "clean", "--json"])
    assert json.loads(result.output)["messages"] in (20, 21)
    assert queues_of(world.primary) == {"orders"}


def test_arrivals_are_found_after_the_service_has_closed_idle_connections(world):
    run = "pairbus-drill-00000000"
    world.primary.create_queue(run)
    arrivals = Arrivals(world.pair, run, [run])
    arrivals.update()
    for namespace in (world.primary, world.secondary):
        namespace.stop()
        namespace.start()
    arrivals.update()
    assert arrivals.in_backlog() == {}
