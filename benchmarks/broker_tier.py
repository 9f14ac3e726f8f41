"""A Standard namespace under more load than its credits allow: sends confirmed, and messages kept.

One client sends messages one by one, 1,500 a second, for a minute. Acknowledged messages must be in
the queue, and refused ones must not. Unlike the others, this benchmark keeps the limits of
the tier.
"""

import os
import time

from pairbus import broker
from pairbus.amqp.message import Message
from pairbus.client import BulkConnection

SECONDS = int(os.environ.get("PAIRBUS_BENCH_TIER_SECONDS", "60"))
RATE = 1500
SLICES = 10  # of a second: an even load


def run():
    with broker.run("bench", tier="standard") as namespace:
        namespace.create_queue("in")
        acknowledged, refused = set(), set()
        with BulkConnection(namespace.connection_string) as connection:
            sender = connection.sender("in")
            time.sleep(1 - time.time() % 1)
            start = time.time()
            for turn in range(SECONDS * SLICES):
                numbers = range(turn * RATE // SLICES, (turn + 1) * RATE // SLICES)
                payloads = [Message.build(data=b"%d" % number).encode() for number in numbers]
                for number, outcome in zip(numbers, sender.send_each(payloads), strict=True):
                    (acknowledged if outcome.is_accepted else refused).add(number)
                time.sleep(max(0.0, start + (turn + 1) / SLICES - time.time()))
            elapsed = time.time() - start
        found = namespace.do(stored)
    yield f"tier_standard_served_rate {len(acknowledged) / elapsed:.1f} msg/s"
    yield f"tier_standard_off_by {(len(acknowledged) / elapsed / 1000 - 1) * 100:.2f} %"
    yield f"tier_standard_refused {len(refused)} messages"
    yield f"tier_standard_acknowledged_and_lost {len(acknowledged - found)} messages"
    yield f"tier_standard_refused_and_there {len(refused & found)} messages"


def stored(namespace):
    """The numbers of the messages in the queue."""
    found, last = set(), 0
    while some := namespace.peek("in", last + 1, 10_000):
        found |= {int(Message.parse(one.message.bare).body) for one in some}
        last = some[-1].message.sequence_number
    return found
