"""No call takes longer than the documented table says, however many senders wait."""

from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.pairing.runtime import aspawn
from pairbus.testing import FaultProxy
from simulation.limits import LIMITS

pytestmark = [pytest.mark.sdk, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(180)]

# A busy machine needs seconds to start threads and to open links; five deadlines, as once were
# spent here, would be more than this.
SLACK = 15.0


@dataclass(frozen=True)
class Times:
    send_timeout: float = 10.0
    open_timeout: float = 5.0


TIMES = Times()


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
@pytest.mark.parametrize("callers", [1, 20])
async def test_no_call_takes_longer_than_documented(world, limit, callers):
    """Both namespaces fail in the way that the row says, so that the whole budget is spent."""
    with ExitStack() as stack:
        primary = stack.enter_context(FaultProxy(world.primary.connection_string))
        secondary = stack.enter_context(FaultProxy(world.secondary.connection_string))
        client = await world.pair(
            world.primary_client(primary.connection_string, retry_total=3),
            secondary=world.secondary_client(secondary.connection_string),
            failover_interval=3600 if limit.name == "before_failover" else 0,
            send_timeout=TIMES.send_timeout,
            open_timeout=TIMES.open_timeout,
            ping_primary_interval=60,
            coalesce=limit.name != "behind_a_silent_send",
        )
        sender = world.keep(client.get_queue_sender("orders"))
        if limit.name != "silent_on_opening":
            await sender.send_messages(ServiceBusMessage("opens"))
        if limit.name == "failed_over":
            await client.force_failover("orders")
            await sender.send_messages(ServiceBusMessage("opens"))
        if limit.name in ("entity_silent", "behind_a_silent_send"):
            world.primary.faults.hang("orders", take=False)
        else:
            primary.mode = "stall"
        secondary.mode = "stall"
        took = []

        async def send():
            started = monotonic()
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage("a"))
            took.append(monotonic() - started)

        tasks = [aspawn(send) for _ in range(callers)]
        assert all([await task.join(150) for task in tasks])

        assert len(took) == callers
        assert max(took) < limit.seconds(TIMES) + SLACK
        primary.mode = secondary.mode = "pass"
