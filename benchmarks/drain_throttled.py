"""A drain into a namespace of the Standard tier that also takes live traffic.

The parts of the syphon run in threads, without Spark; both namespaces throttle by credits, 1,000 a
second. Live senders send 300 messages a second to the primary, and consumers receive everything
that arrives there, live and drained. So 600 credits a second are used by live traffic, and each
message that is drained takes two: 200 a second are left for the drain.

Each figure has the value that is wanted after it. Live sends are counted from the tenth second on;
the ETA is compared with the time that the drain really took, from the tenth second on until five
seconds before its end.

    python -m benchmarks drain_throttled
"""

from __future__ import annotations

import itertools
import socket
import tempfile
import threading
import time

from pairbus import broker
from pairbus.client import BulkConnection
from pairbus.client.errors import ClientError
from pairbus.runtime import ThreadRuntime
from pairbus.syphon.rates import ceiling_of
from pairbus.syphon.status_monitor import StatusMonitor
from pairbus.syphon.status_records import QueueCounts, SyphonStatus
from tests.syphon.conftest import PREFIX, backlog_message, make_queues
from tests.syphon.drains import RunningDrain

CREDITS = 1000
LIVE = 300  # sends a second
MESSAGES = 8000
QUEUES = [f"{PREFIX}/{number}" for number in range(2)]
SETTLED = 10.0  # seconds after which the rate must be found


class LiveTraffic:
    """An application that sends single messages evenly, and counts the refused ones."""

    def __init__(self, namespace, per_second):
        self.namespace, self.per_second = namespace, per_second
        self.sent = self.refused = 0

    def run(self, ended):
        body = b"\x00\x53\x75\xa0\x04live"
        with BulkConnection(self.namespace.connection_string) as connection:
            sender = connection.sender("live")
            due = time.monotonic()
            while not ended.is_set():
                (outcome,) = sender.send_each([body])
                self.sent += 1
                self.refused += not outcome.is_accepted
                # After a pause of the machine it does not send all that it has missed.
                due = max(due + 1 / self.per_second, time.monotonic() - 0.05)
                time.sleep(max(0.0, due - time.monotonic()))


class Consumer:
    """Receives and completes what arrives in one queue; a refused receive is tried again."""

    def __init__(self, namespace, queue):
        self.namespace, self.queue = namespace, queue
        self.received = 0

    def run(self, ended):
        while not ended.is_set():
            try:
                with BulkConnection(self.namespace.connection_string) as connection:
                    receiver = connection.receiver(self.queue)
                    while not ended.is_set():
                        got = receiver.receive(50, max_wait=0.2)
                        receiver.complete(got)
                        self.received += len(got)
            except ClientError:
                time.sleep(0.1)  # throttled


def run():
    """The figures, one line each."""
    with (
        tempfile.TemporaryDirectory() as folder,
        broker.run("contoso", tier="standard", credits_per_second=CREDITS) as primary,
        broker.run("contoso-dr", tier="standard", credits_per_second=CREDITS) as secondary,
    ):
        make_queues(secondary, len(QUEUES))
        for name in ("orders", "live"):
            primary.create_queue(name)
        fill(secondary)
        traffic = LiveTraffic(primary, LIVE)
        parts = [traffic, *(Consumer(primary, name) for name in ("orders", "live"))]
        ended = threading.Event()
        threads = [threading.Thread(target=part.run, args=(ended,)) for part in parts]
        for thread in threads:
            thread.start()
        try:
            ceiling = ceiling_of(CREDITS, 1 / 3)
            with RunningDrain(
                primary, secondary, QUEUES, folder, ceiling=ceiling, pause=0.1
            ) as drain:
                yield from measure(drain, secondary, traffic)
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def fill(secondary):
    """Put the backlog into the queues, as fast as the credits allow."""
    with BulkConnection(secondary.connection_string) as connection:
        for queue, number in itertools.product(QUEUES, range(MESSAGES // len(QUEUES) // 200)):
            batch = [backlog_message("orders", 200 * number + n) for n in range(200)]
            sender = connection.sender(queue)
            while not all(outcome.is_accepted for outcome in sender.send_batch(batch)):
                time.sleep(1.0)
            sender.close()
    time.sleep(1.0)  # the credits of a full second


def measure(drain, secondary, traffic):
    """Watch the drain until its end."""
    monitor = StatusMonitor(
        ThreadRuntime(),
        drain.state,
        SyphonStatus(
            id="s", host=socket.gethostname(), pid=0, primary="p", secondary="s",
            checkpoint=str(drain.state.path),
        ),
        lambda: tuple(QueueCounts(path, count, 0) for path, count in depths(secondary)),
    )  # fmt: skip
    started = time.monotonic()
    before, samples, throttled = None, [], 0
    while True:
        time.sleep(1.0)
        at = time.monotonic() - started
        monitor.tick(is_active=True)
        status = monitor.status(is_active=True, is_stopped=False)
        samples.append((at, status.forwarded, status.eta))
        throttled += status.throttled_by == "primary"
        if before is None and at >= SETTLED:
            before = (at, status.forwarded, traffic.sent, traffic.refused)
        if status.forwarded >= MESSAGES:
            break
    at, forwarded, sent, refused = before
    rate = (MESSAGES - forwarded) / (samples[-1][0] - at)
    left = min(CREDITS * 2 / 3, (CREDITS - 2 * LIVE) / 2)
    live_refused = (traffic.refused - refused) / (traffic.sent - sent)
    receives = drain.state.progress().received / MESSAGES
    errors = [
        abs(eta - (samples[-1][0] - when)) / (samples[-1][0] - when)
        for when, _, eta in samples
        if eta is not None and SETTLED <= when <= samples[-1][0] - 5
    ]
    yield f"drain_throttled_rate {rate:.0f} msg/s"
    yield f"drain_throttled_share_of_credits_left {rate / left:.2f} ratio (wanted: >= 0.85)"
    yield f"drain_throttled_live_refused {100 * live_refused:.2f} % (wanted: <= 0.5)"
    yield f"drain_throttled_receives_per_message {receives:.2f} ratio (wanted: <= 1.1)"
    yield f"drain_throttled_eta_error_most {100 * max(errors):.0f} % (wanted: <= 20)"
    yield f"drain_throttled_seconds_throttled_by_primary {throttled} s of {samples[-1][0]:.0f}"


def depths(secondary):
    """Messages in each backlog queue, without an operation that would take credits."""
    return [(path, secondary.do(lambda ns, p=path: len(ns.peek(p, 0, 10_000)))) for path in QUEUES]
