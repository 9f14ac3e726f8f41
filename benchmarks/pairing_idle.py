"""The first send after a pause, when the service has detached the idle link: paired and bare SDK.

The service detaches a link on which nothing was sent for ten minutes; here it is three seconds.
Both clients are at the SDK's defaults. The figures are the medians of a few pauses.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from benchmarks.pairing_outage import options_for
from pairbus import broker, pair_namespace

IDLE = 3.0  # seconds
PAUSES = 5


def run() -> Iterator[str]:
    """The figures, one line each."""
    with ExitStack() as stack:
        primary = stack.enter_context(broker.run(namespace="contoso", idle_link_timeout=IDLE))
        secondary = stack.enter_context(broker.run(namespace="backup"))
        primary.create_queue("orders")
        text = primary.connection_string
        raw = stack.enter_context(ServiceBusClient.from_connection_string(text))
        sdk = ServiceBusClient.from_connection_string(text)
        paired = stack.enter_context(pair_namespace(sdk, options_for(secondary)))
        senders = {
            "paired": paired.get_queue_sender("orders"),
            "raw": raw.get_queue_sender("orders"),
        }
        taken: dict[str, list[float]] = {name: [] for name in senders}
        for sender in senders.values():
            stack.enter_context(sender)
            sender.send_messages(ServiceBusMessage("opens"))
        for _ in range(PAUSES):
            time.sleep(2 * IDLE)
            for name, sender in senders.items():
                started = time.perf_counter()
                sender.send_messages(ServiceBusMessage("a"))
                taken[name].append(time.perf_counter() - started)
        for name, seconds in taken.items():
            yield f"pairing_idle.first_send.{name} {statistics.median(seconds):.3f} s"
        ratio = statistics.median(taken["paired"]) / statistics.median(taken["raw"])
        yield f"pairing_idle.first_send.paired_over_raw {ratio:.2f} ratio"
        failed_over = int(paired.status().entity("orders").phase != "healthy")
        yield f"pairing_idle.failed_over {failed_over} entities"
