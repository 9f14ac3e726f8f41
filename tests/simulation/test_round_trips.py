"""The bulk client waits for few round trips, however many messages it moves."""

import pytest

import simulation
from pairbus.amqp.message import Message
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.settings import BrokerSettings, Tier
from pairbus.client.aio import BulkConnection

COUNT = 5000


def seconds(round_trip):
    """Virtual seconds that sending, receiving and settling took, each, at this round trip."""

    async def main(loop):
        broker = simulation.SimulatedBroker(BrokerSettings(namespace="contoso", tier=Tier.PREMIUM))
        port = await broker.start(0)
        await broker.do(lambda ns: ns.admin.create(QueueDescription("q")))
        loop.network.conditions("127.0.0.1", port).latency = (round_trip / 2, round_trip / 2)
        runtime = simulation.SimulatedRuntime(loop, "client")
        text = broker.settings.connection_string(port)
        messages = [Message.build(data=b"x" * 100).encode() for _ in range(COUNT)]
        taken = {}
        async with BulkConnection(text, runtime=runtime, timeout=60) as connection:
            sender, receiver = await connection.sender("q"), await connection.receiver("q")
            management = connection.management("q")
            await management.peek(0, 1)

            async def measure(name, action):
                began = loop.time()
                result = await action
                taken[name] = loop.time() - began
                return result

            outcomes = await measure("send", sender.send_batch(messages))
            assert all(outcome.is_accepted for outcome in outcomes)
            found = await measure("receive", receiver.receive_now(COUNT, max_bytes=64 << 20))
            assert len(found) == COUNT
            half = COUNT // 2
            tags = [one.tag for one in found[:half]]
            groups = [tags[start : start + 1000] for start in range(0, half, 1000)]
            await measure("settle by token", management.settle_each(groups))
            answers = await measure("settle on link", receiver.settle(found[half:]))
            assert answers == [None] * half
        await broker.close()
        return taken

    return simulation.run(main, 1)[0]


@pytest.mark.slow
def test_stages_take_few_round_trips():
    near, far = seconds(0.0), seconds(0.060)
    trips = {name: (far[name] - near[name]) / 0.060 for name in far}
    assert trips["send"] <= 3
    assert trips["receive"] <= 8  # a window of 1,024 messages is asked for ahead
    assert trips["settle by token"] <= 2
    assert trips["settle on link"] <= 2
