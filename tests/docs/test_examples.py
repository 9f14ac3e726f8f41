"""The examples of the documentation are programs, and they run."""

import asyncio
import gc
import os
import runpy
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import broker

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
pytestmark = [
    pytest.mark.sdk,
    pytest.mark.slow,
    # The SDK leaves the socket of a connection that was reset to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def load(name: str):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=f"example_{name}")


@pytest.fixture
def pair(monkeypatch):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        for queue in ("orders", "invoices"):
            primary.create_queue(queue)
        monkeypatch.setenv("PAIRBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("PAIRBUS_SECONDARY", secondary.connection_string)
        monkeypatch.setenv("PAIRBUS_PRIMARY_NAMESPACE", "contoso")
        yield primary, secondary
    gc.collect()


def waiting(secondary) -> int:
    with secondary.admin_client() as admin:
        return sum(q.active_message_count for q in admin.list_queues_runtime_properties())


async def test_shop_keeps_taking_orders_through_an_outage(pair, monkeypatch):
    primary, secondary = pair
    monkeypatch.setenv("FAILOVER_INTERVAL", "0")
    app = load("orders_api")["app"]

    async def order(client, number):
        body = {"number": number, "item": "umbrella", "customer": "ada"}
        return (await client.post("/orders", json=body)).status_code

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client,
    ):
        assert await order(client, "1") == 202
        assert (await client.get("/health")).json() == {"orders": "healthy"}
        await asyncio.to_thread(primary.kill)
        assert [await order(client, n) for n in ("2", "3")] == [202, 202]
        assert (await client.get("/health")).json() == {"orders": "failed_over"}
        assert await asyncio.to_thread(waiting, secondary) == 2


async def test_worker_sends_an_invoice_for_each_order(pair):
    primary, _ = pair
    connection = primary.connection_string
    main = load("worker_aio")["main"]
    stop = asyncio.Event()
    running = asyncio.create_task(main(stop))

    def put_and_get() -> list[str]:
        with ServiceBusClient.from_connection_string(connection) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages([ServiceBusMessage("a", message_id=n) for n in "12"])
            found: list[str] = []
            with client.get_queue_receiver("invoices") as receiver:
                while len(found) < 2:
                    for message in receiver.receive_messages(max_wait_time=20):
                        found.append(str(message.message_id))
                        receiver.complete_message(message)
            return found

    assert await asyncio.to_thread(put_and_get) == ["invoice-1", "invoice-2"]
    stop.set()
    assert await asyncio.wait_for(running, 20) == 2


def run_example(name: str, *command: str, timeout: float) -> str:
    done = subprocess.run(
        [sys.executable, *command, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        cwd=EXAMPLES.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pytest_with_the_broker_fixture_passes():
    out = run_example("test_with_broker.py", "-m", "pytest", "-q", "-p", "no:xdist", timeout=500)
    assert "2 passed" in out


@pytest.mark.spark
def test_quickstart_of_the_readme_delivers_the_message():
    out = run_example("quickstart.py", timeout=500)
    assert "stored in contoso/x-servicebus-transfer/" in out
    assert "delivered: an umbrella" in out


def test_readme_shows_the_quickstart_as_it_is_tested():
    readme = (EXAMPLES.parent / "README.md").read_text()
    code = (EXAMPLES / "quickstart.py").read_text().split("\n\n", 1)[1]
    assert code.strip() in readme
