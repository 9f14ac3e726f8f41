"""What pairing costs: the paired sender against the SDK's own, in one run, turn by turn.

Ratios are medians over many short turns that alternate between the two, so that what else the
machine does hits both alike. The brokers run in processes of their own.
"""

import gc
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.broker.clients import admin_client

TURNS = 41
SINGLES = 60  # sends in a turn
BATCHES = 4  # batches in a turn, of 100 messages each
BODY = "x" * 1024


def _serve(namespace: str, pipe) -> None:
    from pairbus import broker

    with broker.run(namespace=namespace) as running:
        running.create_queue("orders") if namespace == "contoso" else None
        pipe.send(running.connection_string)
        pipe.recv()


@contextmanager
def served(namespace: str) -> Iterator[str]:
    """A namespace in a process of its own; gives its connection string."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(namespace, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("stop")
        process.join(10)


def singles(sender) -> None:
    for _ in range(SINGLES):
        sender.send_messages(ServiceBusMessage(BODY))


def batches(sender) -> None:
    for _ in range(BATCHES):
        batch = sender.create_message_batch()
        for _ in range(100):
            batch.add_message(ServiceBusMessage(BODY))
        sender.send_messages(batch)


def ratio(work: Callable[[object], None], one: object, other: object) -> tuple[float, float]:
    """How fast `one` is as a multiple of `other`, and how many turns of `one` fit a second."""
    work(one), work(other)
    ratios, rates = [], []
    gc.collect()
    gc.disable()
    try:
        for turn in range(TURNS):
            taken = {}
            for sender in (one, other) if turn % 2 else (other, one):
                started = time.perf_counter()
                work(sender)
                taken[id(sender)] = time.perf_counter() - started
            ratios.append(taken[id(other)] / taken[id(one)])
            rates.append(1 / taken[id(one)])
    finally:
        gc.enable()
    return statistics.median(ratios), statistics.median(rates)


def run() -> Iterator[str]:
    """The figures, one line each."""
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(served(name)) for name in ("contoso", "backup"))

        def paired(**options):
            client = pair_namespace(
                ServiceBusClient.from_connection_string(primary),
                SendAvailabilityPairedNamespaceOptions(
                    secondary=ServiceBusClient.from_connection_string(secondary),
                    secondary_admin=admin_client(secondary),
                    primary_namespace="contoso",
                    backlog_queue_count=2,
                    failover_interval=0,
                    ping_primary_interval=1800,
                    **options,
                ),
            )
            return stack.enter_context(client)

        raw_client = stack.enter_context(ServiceBusClient.from_connection_string(primary))
        raw = stack.enter_context(raw_client.get_queue_sender("orders"))
        client = paired()
        sender = stack.enter_context(client.get_queue_sender("orders"))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ledger_sender = stack.enter_context(paired(ledger=folder).get_queue_sender("orders"))

        for name, work, unit in (("single", singles, SINGLES), ("batch", batches, BATCHES * 100)):
            value, rate = ratio(work, sender, raw)
            yield f"pairing_send.paired_over_raw.{name} {value:.3f} ratio"
            yield f"pairing_send.paired.{name} {rate * unit:.0f} msg/s"
            value, _ = ratio(work, ledger_sender, sender)
            yield f"pairing_send.ledger_on_over_off.{name} {value:.3f} ratio"

        failed_over = paired()
        over = stack.enter_context(failed_over.get_queue_sender("orders"))
        started = time.perf_counter()
        failed_over.force_failover("orders")
        over.send_messages(ServiceBusMessage(BODY))
        seconds = time.perf_counter() - started
        yield f"pairing_send.engaged_to_first_backlog_send {seconds:.3f} s"
        for name, work in (("single", singles), ("batch", batches)):
            value, _ = ratio(work, over, sender)
            yield f"pairing_send.failed_over_over_healthy.{name} {value:.3f} ratio"
