"""Every command and snippet of the documentation, as printed and in order, in an empty folder."""

import gc
import json
import random
import shutil
import socket
import threading
import time

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace
from pairbus.events import Restored
from pairbus.monitoring.configuration import resolve_pair
from pairbus.testing import FaultProxy, pair_options
from tests.docs.pages import PAGES, ROOT, SHELL, Reader, blocks

pytestmark = [
    pytest.mark.slow,
    # Snippets leave clients open, and the SDK leaves their sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def long(test):
    """Mark a walk that starts Spark in processes of its own."""
    for mark in (pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)):
        test = mark(test)
    return test


CONFIG = {"UserConfig": {"Namespaces": [{"Name": "contoso", "Queues": [{"Name": "stock"}]}]}}
PAIR = """
[pairs.orders]
primary = "CONTOSO"
secondary = "CONTOSO_DR"
primary_namespace = "contoso"
backlog_queue_count = 2
ledger = "ledger"
checkpoint = "checkpoint"
"""

WALKED = {
    "README.md",
    "docs/broker.md",
    "docs/howto/add-to-an-application.md",
    "docs/howto/cost.md",
    "docs/howto/deliver-elsewhere.md",
    "docs/howto/drill.md",
    "docs/howto/spark-cluster.md",
    "docs/howto/spark-connector.md",  # tests/spark/connector/test_page.py
    "docs/howto/test-your-application.md",
    "docs/howto/watch-a-pair.md",
    "docs/reference/connector.md",  # tests/spark/connector/test_page.py
    "docs/topics/amqp-engine.md",
    "docs/topics/application.md",
    "docs/topics/broker-administration.md",
    "docs/topics/sql-filters.md",
    "docs/topics/syphon.md",
    "docs/tutorial/index.md",
}


def free_port() -> str:
    """A port that is free, and stays so: outside the range from which connections get theirs."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return str(port)


@pytest.fixture
def reader(tmp_path, monkeypatch, request):
    """Make a reader with what they replace, and the names that the page takes for granted."""
    readers = []
    monkeypatch.chdir(tmp_path)
    for name in ("PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY", "PAIRBUS_PRIMARY_NAMESPACE"):
        monkeypatch.setenv(name, "")  # so that what a page exports is undone
        monkeypatch.delenv(name)

    def make(**options) -> Reader:
        readers.append(Reader(tmp_path, fixture=request.getfixturevalue, **options))
        return readers[-1]

    yield make
    for one in readers:
        one.close()
        for value in list(one.scope.values()):
            if isinstance(value, ServiceBusClient):
                value.close()
    gc.collect()


@pytest.fixture
def pair(monkeypatch):
    """Two namespaces with a queue, their connection strings in variables."""
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        monkeypatch.setenv("CONTOSO", primary.connection_string)
        monkeypatch.setenv("CONTOSO_DR", secondary.connection_string)
        yield primary, secondary


def is_protected(client) -> bool:
    """Whether a client can use its secondary; pairing may complete in the background."""
    deadline = time.monotonic() + 50
    while client.status().unprotected is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return client.status().unprotected is None


def backlog(pair, ledger, number=3) -> None:
    """Leave messages in the backlog, as an application during an outage does."""
    primary, secondary = pair
    options = pair_options(
        primary, secondary, failover_interval=0, backlog_queue_count=2, ledger=ledger
    )
    with pair_namespace(primary.client(), options) as client:
        client.force_failover("orders")
        with client.get_queue_sender("orders") as sender:
            for n in range(number):
                sender.send_messages(ServiceBusMessage(f"order {n}"))


def test_every_page_with_a_snippet_is_walked_through():
    shown = {
        str(page.relative_to(ROOT))
        for page in PAGES
        if any(not block.not_run for block in blocks(page, *SHELL, "python"))
    }
    assert shown == WALKED


def test_few_blocks_are_not_run_and_each_says_why():
    skipped = [block for page in PAGES for block in blocks(page, *SHELL, "python") if block.not_run]
    assert len(skipped) <= 10, [f"{block}: {block.not_run}" for block in skipped]


def test_readme_pairs_the_clients_of_an_application():
    # Hosts that do not answer: pairing completes in the background.
    scope = {
        "SendAvailabilityPairedNamespaceOptions": SendAvailabilityPairedNamespaceOptions,
        "ServiceBusAdministrationClient": ServiceBusAdministrationClient,
        "ServiceBusClient": ServiceBusClient,
        "pair_namespace": pair_namespace,
        "PRIMARY_HOST": "contoso.servicebus.invalid",
        "SECONDARY_HOST": "contoso-dr.servicebus.invalid",
    }
    with broker.run() as ns:
        scope["credential"] = ns.credential()
        second = blocks(ROOT / "README.md", "python")[1]
        exec(compile(second.text, str(second), "exec"), scope)
        assert scope["client"].status().primary == "contoso.servicebus.invalid"
        scope["client"].close()


def test_broker_page(reader, tmp_path, servicebus):
    (tmp_path / "Config.json").write_text(json.dumps(CONFIG))
    given = {"ns": servicebus, "FaultProxy": FaultProxy}
    output = reader(replace={"5672": free_port()}, scope=given).read("docs/broker.md")
    assert '"throttle"' in output


def test_application_is_paired_by_the_steps_of_the_guide(reader, pair):
    typed = reader(replace=connection_strings(pair))
    output = typed.read("docs/howto/add-to-an-application.md", until="syphon run")
    assert "contoso/x-servicebus-transfer/9" in output
    assert is_protected(typed.scope["client"])


@long
def test_application_is_drained_by_the_last_step_of_the_guide(reader, pair):
    typed = reader(replace=connection_strings(pair))
    typed.read("docs/howto/add-to-an-application.md")
    assert "syphon runs" in typed.logs()


def connection_strings(pair) -> dict[str, str]:
    """What a reader puts for the connection strings that a page shortens."""
    rest = ".servicebus.windows.net/;SharedAccessKeyName=…;SharedAccessKey=…"
    primary, secondary = (ns.connection_string for ns in pair)
    return {f"Endpoint=sb://contoso{rest}": primary, f"Endpoint=sb://contoso-dr{rest}": secondary}


def test_tests_of_an_application_run_as_shown(reader):
    class Shop:
        def __init__(self, client):
            self._sender = client.get_queue_sender("orders")

        def take_order(self, item):
            self._sender.send_messages(ServiceBusMessage(item))
            return True

    reader(scope={"Shop": Shop}).read("docs/howto/test-your-application.md")


@pytest.mark.long
def test_a_pair_is_checked_by_the_commands_of_the_drill(reader, pair, tmp_path):
    (tmp_path / "pairbus.toml").write_text(PAIR)
    backlog(pair, str(tmp_path / "ledger"))
    shorter = {"--rate 50": "--checks-only --rate 50", "--json": "--checks-only --json"}
    scope = {
        "SendAvailabilityPairedNamespaceOptions": SendAvailabilityPairedNamespaceOptions,
        "secondary": pair[1].client(),
    }
    reader(replace=shorter, scope=scope).read("docs/howto/drill.md")


@pytest.mark.long
def test_a_pair_is_watched_with_the_commands_shown(reader, pair, tmp_path):
    (tmp_path / "pairbus.toml").write_text('default = "orders"\n' + PAIR)
    backlog(pair, str(tmp_path / "ledger"))
    shutil.copytree(tmp_path / "ledger", tmp_path / "var" / "ledger")
    typed = reader(
        replace={"pairbus dashboard": f"pairbus dashboard --port {free_port()}"},
        exit_codes={"pairbus check": "1"},
    )
    output = typed.read("docs/howto/watch-a-pair.md")
    assert "Live page:" in typed.logs()
    assert "pairbus WARNING" in output


@pytest.mark.parametrize("page", ["amqp-engine", "broker-administration"])
def test_topic_runs_as_shown(reader, page):
    reader().read(f"docs/topics/{page}.md")


def test_clients_are_paired_as_the_topic_shows(reader, pair):
    primary, secondary = pair
    scope = {
        "SendAvailabilityPairedNamespaceOptions": SendAvailabilityPairedNamespaceOptions,
        "pair_namespace": pair_namespace,
        "client": ServiceBusClient("contoso.servicebus.invalid", primary.credential()),
        "secondary_client": secondary.client(),
        "secondary_admin": secondary.admin_client(),
    }
    typed = reader(scope=scope)
    typed.read("docs/topics/application.md")
    assert is_protected(typed.scope["client"])


def test_rule_is_created_as_shown(reader, servicebus):
    admin = servicebus.admin_client()
    admin.create_topic("orders")
    admin.create_subscription("orders", "large")
    reader(scope={"admin": admin}).read("docs/topics/sql-filters.md")
    assert [rule.name for rule in admin.list_rules("orders", "large")] == [
        "$Default",
        "large-and-red",
    ]


def test_configuration_file_is_understood_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTOSO", "contoso.servicebus.windows.net")
    (shown,) = blocks(ROOT / "docs/howto/configure.md", "toml")
    text = shown.text.replace("Endpoint=sb://…", "contoso-dr.servicebus.windows.net")
    (tmp_path / "pairbus.toml").write_text(text)
    found = resolve_pair()
    assert (found.primary.host, found.secondary.host, found.ledger) == (
        "contoso.servicebus.windows.net",
        "contoso-dr.servicebus.windows.net",
        "/var/lib/pairbus/ledger",
    )


def test_rule_for_chaos_tools_redirects_sends_to_a_disabled_queue(pair):
    (shown,) = blocks(ROOT / "docs/howto/drill.md", "python")
    primary, secondary = pair
    scope = {
        "SendAvailabilityPairedNamespaceOptions": SendAvailabilityPairedNamespaceOptions,
        "secondary": secondary.client(),
    }
    exec(compile(shown.text, str(shown), "exec"), scope)
    restored = threading.Event()
    options = pair_options(
        primary,
        secondary,
        failover_interval=0,
        ping_primary_interval=1,
        classify=scope["options"].classify,
        observers=[lambda event: restored.set() if isinstance(event, Restored) else None],
    )
    with (
        pair_namespace(primary.client(), options) as client,
        client.get_queue_sender("orders") as sender,
        primary.admin_client() as admin,
    ):
        queue = admin.get_queue("orders")
        admin.update_queue(queue, status="Disabled")
        sender.send_messages(ServiceBusMessage("during the rehearsal"))
        assert client.status().entities[0].phase == "failed_over"
        admin.update_queue(queue, status="Active")
        assert restored.wait(50)
        sender.send_messages(ServiceBusMessage("after it"))
        assert admin.get_queue_runtime_properties("orders").active_message_count == 1


def test_java_of_the_cluster_page_is_found(reader, tmp_path):
    typed = reader()
    typed.read("docs/howto/spark-cluster.md")
    typed.type('test -x "$JAVA_HOME/bin/java"')


@long
def test_backlog_is_delivered_to_another_namespace_as_shown(reader, pair, tmp_path, monkeypatch):
    (tmp_path / "pairbus.toml").write_text(PAIR)
    pair[1].create_queue("orders")
    backlog(pair, str(tmp_path / "ledger"))
    with broker.run("contoso-new") as new:
        new.create_queue("orders-v2")
        monkeypatch.setenv("CONTOSO_NEW", new.connection_string)
        reader().read("docs/howto/deliver-elsewhere.md")
    with pair[1].client() as client, client.get_queue_receiver("orders") as receiver:
        assert len(receiver.peek_messages(max_message_count=10)) == 3


@long
def test_drill_page(reader, pair, tmp_path):
    (tmp_path / "pairbus.toml").write_text('default = "orders"\n' + PAIR)
    with pair_namespace(pair[0].client(), pair_options(*pair, backlog_queue_count=2)):
        pass  # creates the backlog queues
    scope = {
        "SendAvailabilityPairedNamespaceOptions": SendAvailabilityPairedNamespaceOptions,
        "secondary": pair[1].client(),
    }
    # A warning is no failure: the pair of the test detects no duplicates.
    typed = reader(scope=scope, exit_codes={"pairbus drill --pair orders --": "01"})
    typed.read("docs/howto/drill.md")
    assert typed.scope["options"].classify


@long
def test_cost_page(reader, pair, tmp_path, monkeypatch):
    ledger = str(tmp_path / "var" / "ledger")
    backlog(pair, ledger)
    monkeypatch.setenv("PAIRBUS_SECONDARY", pair[1].connection_string)
    scope = {
        "SendAvailabilityPairedNamespaceOptions": SendAvailabilityPairedNamespaceOptions,
        "secondary": pair[1].client(),
    }
    typed = reader(scope=scope)
    typed.type(f"export PAIRBUS_SECONDARY='{pair[1].connection_string}'")
    output = typed.read("docs/howto/cost.md")
    assert "3 waiting" in output
    assert (tmp_path / "outage.html").exists()


@long
def test_syphon_page(reader, pair, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # where the checkpoint is, if none is given
    backlog(pair, str(tmp_path / "var" / "ledger"))
    # Hosts that are addresses need the primary's name.
    ours = {'"PAIRBUS_SECONDARY")': '"PAIRBUS_SECONDARY", primary_namespace="contoso")'}
    typed = reader(replace={**connection_strings(pair), **ours})
    typed.type("export PAIRBUS_PRIMARY_NAMESPACE=contoso PAIRBUS_BACKLOG_QUEUE_COUNT=2")
    output = typed.read("docs/topics/syphon.md")
    assert "paused" in output
    assert "resumed" in output


@long
def test_tutorial(reader, tmp_path):
    shutil.copy(ROOT / "examples" / "shop.py", tmp_path)
    typed = reader(
        replace={port: free_port() for port in ("5672", "5673", "8666")},
        exit_codes={"pairbus check": "1"},  # a warning, as the text says
    )
    output = typed.read("docs/tutorial/index.md")
    assert "order 3 taken, orders is healthy" in output
    assert "order 5 taken, orders is failed_over" in output
    assert "pairbus WARNING" in output
    assert "none lost" in output
    assert "Live page: http://127.0.0.1:" in typed.logs()
