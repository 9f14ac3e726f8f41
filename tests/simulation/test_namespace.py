"""The SDK's asyncio client, the embedded broker and the bulk client on one seeded loop."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

import simulation
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.settings import BrokerSettings, Tier
from pairbus.client import ClientError
from pairbus.client.aio import BulkConnection

ROOT = Path(__file__).parents[2]


async def started(loop, name="contoso"):
    broker = simulation.SimulatedBroker(BrokerSettings(namespace=name, tier=Tier.STANDARD))
    port = await broker.start(0)
    await broker.do(lambda ns: ns.admin.create(QueueDescription("orders")))
    return broker, broker.settings.connection_string(port), port


async def scenario(loop):
    """The SDK sends while connections are reset; the bulk client receives and settles."""
    broker, text, port = await started(loop)
    network = loop.network
    runtime = simulation.SimulatedRuntime(loop, "syphon")
    sent, received = [], []

    async def send():
        client = ServiceBusClient.from_connection_string(text, retry_total=10)
        async with client, client.get_queue_sender("orders") as sender:
            for n in range(20):
                await sender.send_messages(ServiceBusMessage(b"x", message_id=str(n)))
                sent.append(n)
                await asyncio.sleep(loop.random.uniform(0, 2))

    async def receive():
        while len(received) < 20:
            try:
                async with BulkConnection(text, runtime=runtime, timeout=10) as connection:
                    receiver = await connection.receiver("orders")
                    while len(received) < 20:
                        if await receiver.wait(5):
                            got = await receiver.receive_now(10)
                            for one, error in zip(got, await receiver.settle(got), strict=True):
                                if error is None:
                                    received.append(one.message.properties.message_id)
            except ClientError as exc:
                network.note(f"receiver: {type(exc).__name__}")
                await asyncio.sleep(0.5)

    async def disturb():
        for _ in range(4):
            await asyncio.sleep(loop.random.uniform(1, 6))
            fault = loop.random.choice([network.reset, network.cut])
            fault("127.0.0.1", port)

    await asyncio.gather(send(), receive(), disturb())
    await broker.close()
    return sent, received


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_while_connections_break(seed):
    (sent, received), loop = simulation.run(scenario, seed)
    assert sent == list(range(20))
    assert set(received) >= {str(n) for n in sent}
    assert loop.time() > 5


def test_same_seed_same_trace():
    digests = [simulation.run(scenario, seed)[1].trace.digest for seed in (1, 1, 2, 1)]
    assert digests[0] == digests[1] == digests[3] != digests[2]


@pytest.mark.slow
def test_same_seed_same_trace_in_another_process():
    program = (
        "import simulation, json\n"
        "from tests.simulation.test_namespace import scenario\n"
        "print(json.dumps([simulation.run(scenario, n)[1].trace.digest for n in (1, 2)]))\n"
    )
    found = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        answer = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        found.add(tuple(json.loads(answer.stdout.splitlines()[-1])))
    assert len(found) == 1
