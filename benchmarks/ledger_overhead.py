"""What the ledger costs a healthy paired send: sends with it, divided by sends without.

The two take turns, so that what else the machine does hits both; the broker runs in a process of
its own.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, pair_namespace

ROUNDS = 30
SENDS = 150

BROKER = """
import sys
from pairbus import broker
free = {"credits_per_second": 0}
with broker.run("contoso", **free) as one, broker.run("contoso-dr", **free) as two:
    one.create_queue("orders")
    print(one.connection_string)
    print(two.connection_string, flush=True)
    sys.stdin.read()
"""


def paired(primary, secondary, ledger):
    from pairbus.administration import admin_client

    options = SendAvailabilityPairedNamespaceOptions(
        secondary=ServiceBusClient.from_connection_string(secondary),
        secondary_admin=admin_client(secondary),
        primary_namespace="contoso",
        backlog_queue_count=1,
        ledger=ledger,
    )
    return pair_namespace(ServiceBusClient.from_connection_string(primary), options)


def run():
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        primary, secondary = (process.stdout.readline().strip() for _ in range(2))
        with tempfile.TemporaryDirectory() as folder:
            yield from _compare(primary, secondary, str(Path(folder) / "ledger"))
    finally:
        process.communicate("", timeout=30)


def _compare(primary, secondary, ledger):
    body = b"x" * 1024
    with paired(primary, secondary, None) as off, paired(primary, secondary, ledger) as on:
        senders = {"off": off.get_queue_sender("orders"), "on": on.get_queue_sender("orders")}
        rates = {"off": [], "on": []}
        cpu = {"off": [], "on": []}
        for number in range(ROUNDS + 2):
            # each goes first every other time
            for name in ("off", "on") if number % 2 else ("on", "off"):
                started, used = time.perf_counter(), time.process_time()
                for _ in range(SENDS):
                    senders[name].send_messages(ServiceBusMessage(body))
                if number >= 2:
                    rates[name].append(SENDS / (time.perf_counter() - started))
                    cpu[name].append((time.process_time() - used) / SENDS * 1e6)
        for sender in senders.values():
            sender.close()
    ratios = [a / b for a, b in zip(rates["on"], rates["off"], strict=True)]
    yield f"ledger.sends.off {statistics.median(rates['off']):.0f} msg/s"
    yield f"ledger.sends.on {statistics.median(rates['on']):.0f} msg/s"
    yield f"ledger.sends.on_of_off {statistics.median(ratios):.3f} ratio"
    # the processor's time hardly depends on what else the machine does
    yield f"ledger.sends.cpu_off {min(cpu['off']):.1f} us"
    yield f"ledger.sends.cpu_on {min(cpu['on']):.1f} us"


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
