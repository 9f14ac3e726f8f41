"""A paired client in a process that forks, as an application server does after it has loaded."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pyarrow.dataset as ds
import pytest

from pairbus import broker
from pairbus.pairing import forking
from pairbus.pairing._sync.lifecycle import Side

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sdk,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

START = '''
import asyncio, atexit, json, os, sys, threading
from azure.servicebus import ServiceBusClient, ServiceBusMessage, aio
import pairbus, pairbus.aio
from pairbus import events
from pairbus.administration import admin_client, aio_admin_client

primary, secondary, ledger = sys.argv[1:4]
restored = threading.Event()

def options(of, client, admin, **changes):
    return of.SendAvailabilityPairedNamespaceOptions(
        secondary=client, secondary_admin=admin, primary_namespace="contoso",
        backlog_queue_count=1, failover_interval=0, send_timeout=5, **changes)

def seen(event):
    if isinstance(event, events.Restored):
        restored.set()

def tell(**facts):
    print(json.dumps({"pid": os.getpid(), **facts}), flush=True)

def child(work):
    """Run `work` in a forked process and wait for it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            tell(failed=repr(error))
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
'''


@pytest.fixture
def namespaces():
    with broker.run(namespace="contoso") as primary, broker.run(namespace="backup") as secondary:
        primary.create_queue("orders")
        yield primary, secondary


def run(namespaces, ledger, program):
    """What the program told, one fact after another."""
    texts = [namespace.connection_string for namespace in namespaces]
    code = START + textwrap.dedent(program)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *texts, str(ledger)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (told, done.stderr)
    return told


def bodies(namespace, path):
    return sorted(d.message.bare[-2:] for d in namespace.do(lambda ns: ns.peek(path, 0, 100)))


def test_child_sends_on_links_of_its_own_and_leaves_the_parents_alone(namespaces, tmp_path):
    told = run(
        namespaces,
        tmp_path,
        """
        client = pairbus.pair_namespace(
            ServiceBusClient.from_connection_string(primary, retry_total=0),
            options(pairbus, ServiceBusClient.from_connection_string(secondary),
                    admin_client(secondary), ledger=ledger, ping_primary_interval=1,
                    observers=[seen]))
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("p1"))
        link = sender._primary.connection.sender

        def work():
            assert not link._handler._connection._transport.sock.fileno() >= 0
            sender.send_messages(ServiceBusMessage("c1"))
            with client.get_queue_sender("orders") as other:
                other.send_messages(ServiceBusMessage("c2"))
            counts = client.status().entity("orders").counts
            there = sorted(os.listdir(ledger + "/status"))
            client.close()
            tell(who="child", sent=counts.sent_primary, status=there, id=client.status().client_id)

        assert child(work) == 0
        sender.send_messages(ServiceBusMessage("p2"))
        assert sender._primary.connection.sender is link, "the parent's link was cut"
        status = client.status()
        tell(who="parent", sent=status.entity("orders").counts.sent_primary, id=status.client_id,
             failures=status.entity("orders").counts.failures,
             status=sorted(os.listdir(ledger + "/status")))
        client.close()
        """,
    )
    child, parent = told

    assert bodies(namespaces[0], "orders") == [b"c1", b"c2", b"p1", b"p2"]
    assert (child["sent"], parent["sent"], parent["failures"]) == (2, 2, 0)
    assert child["id"] != parent["id"]
    assert child["status"] == sorted([f"{child['id']}.json", f"{parent['id']}.json"])
    assert parent["status"] == [f"{parent['id']}.json"], "a child removes its own status alone"
    rows = ds.dataset(tmp_path / "operations").to_table().to_pylist()
    sends = {
        who["id"]: sum(r["messages"] for r in rows if r["client_id"] == who["id"]) for who in told
    }
    assert sends == {child["id"]: 2, parent["id"]: 2}, "each operation is written once"


def test_locks_of_the_parent_do_not_stop_its_children(namespaces, tmp_path):
    run(
        namespaces,
        tmp_path,
        """
        client = pairbus.pair_namespace(
            ServiceBusClient.from_connection_string(primary),
            options(pairbus, ServiceBusClient.from_connection_string(secondary),
                    admin_client(secondary)))
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("p1"))
        pair = client._lifecycle.pair
        locked, forked = threading.Event(), threading.Event()

        def hold():
            with (pair.entity("orders").guard, pair._guard, client._lifecycle._guard,
                  sender._guard, sender._backlog._guard):
                locked.set()
                forked.wait()

        threading.Thread(target=hold, daemon=True).start()
        locked.wait()

        def ends(work):
            working = threading.Thread(target=work, daemon=True)
            working.start()
            working.join(20)
            assert not working.is_alive()

        def use():
            ends(lambda: sender.send_messages(ServiceBusMessage("c1")))
            ends(client.close)

        assert child(lambda: ends(sender.close)) == 0
        assert child(lambda: ends(client.close)) == 0
        assert child(use) == 0
        forked.set()
        sender.send_messages(ServiceBusMessage("p2"))
        client.close()
        """,
    )

    assert bodies(namespaces[0], "orders") == [b"c1", b"p1", b"p2"]


def test_child_of_a_child_that_did_not_use_the_client_uses_it(namespaces, tmp_path):
    run(
        namespaces,
        tmp_path,
        """
        client = pairbus.pair_namespace(
            ServiceBusClient.from_connection_string(primary),
            options(pairbus, ServiceBusClient.from_connection_string(secondary),
                    admin_client(secondary)))
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("p1"))

        def work():
            sender.send_messages(ServiceBusMessage("c1"))
            client.close()

        def fork_again():
            assert child(work) == 0

        assert child(fork_again) == 0
        client.close()
        """,
    )

    assert bodies(namespaces[0], "orders") == [b"c1", b"p1"]


def test_close_of_a_client_that_another_thread_has_just_restarted_is_left_to_the_lifecycle():
    side = Side("paired")  # open again

    assert not forking.close(SimpleNamespace(paired_side=side))

    assert side.state == "open"


def test_child_pings_and_comes_home_by_itself(namespaces, tmp_path):
    primary = namespaces[0]
    primary.kill()
    flag = tmp_path / "forked"

    def bring_back():
        while not flag.exists():
            time.sleep(0.02)
        primary.restart()

    bringing = threading.Thread(target=bring_back)
    bringing.start()
    told = run(
        namespaces,
        flag,
        """
        client = pairbus.pair_namespace(
            ServiceBusClient.from_connection_string(primary, retry_total=0),
            options(pairbus, ServiceBusClient.from_connection_string(secondary),
                    admin_client(secondary), ping_primary_interval=1, observers=[seen]))
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("p1"))

        def work():
            restored.clear()
            sender.send_messages(ServiceBusMessage("c1"))
            open(ledger, "w").close()
            assert restored.wait(60), "no ping in the child"
            sender.send_messages(ServiceBusMessage("c2"))
            tell(phase=client.status().entity("orders").phase)

        assert child(work) == 0
        client.close()
        """,
    )
    bringing.join()

    assert told[0]["phase"] == "healthy"
    assert bodies(namespaces[1], "contoso/x-servicebus-transfer/0") == [b"c1", b"p1"]
    assert bodies(primary, "orders") == [b"c2"]


def test_child_of_an_unprotected_client_becomes_protected_by_itself(namespaces, tmp_path):
    secondary = namespaces[1]
    secondary.kill()
    flag = tmp_path / "forked"

    def come_back():
        while not flag.exists():
            time.sleep(0.05)
        secondary.start()

    waiting = threading.Thread(target=come_back, daemon=True)
    waiting.start()
    [told] = run(
        namespaces,
        tmp_path,
        f"""
        client = pairbus.pair_namespace(
            ServiceBusClient.from_connection_string(primary, retry_total=0),
            options(pairbus, ServiceBusClient.from_connection_string(secondary),
                    admin_client(secondary)))
        sender = client.get_queue_sender("orders")
        assert client.status().unprotected

        def work():
            sender.send_messages(ServiceBusMessage("c1"))
            before = client.status().unprotected
            open({str(flag)!r}, "w").close()
            for _ in range(1200):
                if not client.status().unprotected:
                    break
                threading.Event().wait(0.05)
            assert not client.status().unprotected
            client.force_failover("orders")
            sender.send_messages(ServiceBusMessage("c2"))
            tell(before=before)
            client.close()

        assert child(work) == 0
        client.close()
        """,
    )
    waiting.join(60)

    assert told["before"]
    assert bodies(namespaces[0], "orders") == [b"c1"]
    assert bodies(secondary, "contoso/x-servicebus-transfer/0") == [b"c2"]


def test_async_client_says_in_the_child_that_it_stayed_behind(namespaces, tmp_path):
    told = run(
        namespaces,
        tmp_path,
        """
        from pairbus.exceptions import ClientFaultedError

        async def main():
            admin = aio_admin_client(secondary)
            client = await pairbus.aio.pair_namespace(
                aio.ServiceBusClient.from_connection_string(primary),
                options(pairbus.aio, aio.ServiceBusClient.from_connection_string(secondary), admin,
                        ping_primary_interval=1, ledger=ledger))
            sender = client.get_queue_sender("orders")
            await sender.send_messages(ServiceBusMessage("p1"))
            link = sender._primary.connection.sender

            async def close_all():
                await sender.close()
                await client.close()

            def work():
                try:
                    client.get_queue_sender("orders")
                except ClientFaultedError as error:
                    tell(says=str(error))
                asyncio.run(close_all())
                atexit._run_exitfuncs()

            assert child(work) == 0
            status = os.listdir(ledger + "/status")
            await sender.send_messages(ServiceBusMessage("p2"))
            assert sender._primary.connection.sender is link, "the parent's link was closed"
            tell(status=status, id=client.status().client_id)
            await client.close()
            await admin.close()

        asyncio.run(main())
        """,
    )
    child, parent = told

    assert "forked" in child["says"]
    assert bodies(namespaces[0], "orders") == [b"p1", b"p2"]
    assert parent["status"] == [f"{parent['id']}.json"], "the child leaves the parent's alone"
    rows = ds.dataset(tmp_path / "operations").to_table().to_pylist()
    assert sum(row["messages"] for row in rows) == 2, "each operation is written once"
