# generated from tests/pairing/_async/test_flapping.py by tools/gen_unasync.py; edit that one
"""A primary that comes and goes loses nothing that was accepted."""

import random

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus import PairUnavailableError, events
from pairbus.pairing.runtime import Event, sleep, spawn
from pairbus.testing import FaultProxy

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


@pytest.mark.parametrize("failover_interval", [0, 0.3])
def test_flapping_primary_loses_nothing_that_was_accepted(world, failover_interval):
    chance = random.Random(3)
    with FaultProxy(world.primary.connection_string) as proxy:
        client = world.pair(
            world.primary_client(proxy.connection_string, retry_total=1),
            failover_interval=failover_interval,
            send_timeout=3,
        )
        accepted, refused, errors = [], [], []
        stop = Event()

        def produce(name):
            with client.get_queue_sender("orders") as sender:
                number = 0
                while not stop.wait(0.01):
                    number += 1
                    ids = [f"{name}-{number}"]
                    what = ServiceBusMessage("x", message_id=ids[0])
                    if number % 3 == 0:
                        ids = [f"{name}-{number}-{part}" for part in range(3)]
                        what = [ServiceBusMessage("x", message_id=one) for one in ids]
                    try:
                        sender.send_messages(what)
                    except ServiceBusError as error:
                        refused.extend(ids)
                        errors.append(error)
                    else:
                        accepted.extend(ids)

        tasks = [spawn(produce, name) for name in range(3)]
        for mode in ("refuse", "pass", "deaf", "pass", "reset", "stall", "pass", "cut", "pass"):
            proxy.mode = mode
            stop.wait(chance.uniform(0.4, 1.2))
            if mode == "refuse":
                world.seen.wait(events.MessageBacklogged, seconds=120)
        while client.status().entity("orders").phase != "healthy":
            sleep(0.02)
        before = client.status().entity("orders").counts.sent_primary
        while client.status().entity("orders").counts.sent_primary == before:
            sleep(0.02)
        stop.set()
        assert all([task.join(120) for task in tasks])
        client.close()

        at_home, waiting = (
            {message.properties.message_id for message in found}
            for found in (world.messages(world.primary, "orders"), world.backlog())
        )
        assert at_home, "the primary was back"
        assert waiting, "the outages were seen"
        assert set(accepted) <= at_home | waiting, "something that was accepted is nowhere"
        assert at_home | waiting <= {*accepted, *refused}
        if failover_interval == 0:  # only the secondary can have been too slow
            assert all(isinstance(error, PairUnavailableError) for error in errors)
