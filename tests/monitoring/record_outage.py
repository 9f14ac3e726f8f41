"""Record the metrics of a real outage for the tests of the alert rules.

    python -m tests.monitoring.record_outage

takes 23 minutes. Two namespaces, a paired client that sends twice a second, a syphon on Spark and
the live page run through an outage, a drain, the loss of the syphon, a second outage, a second
drain and a dead letter; `/metrics` is read every 15 seconds. The result is
`data/outage.yml`: the series in the notation of `promtool test rules`, and when what began.
"""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import yaml
from azure.servicebus import ServiceBusMessage

from pairbus import broker, pair_namespace
from pairbus.dashboard.serve import serving
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.testing import pair_options

FILE = Path(__file__).parent / "data" / "outage.yml"
INTERVAL = 15
BACKLOG = "contoso/x-servicebus-transfer/0"


class Recording:
    """Samples of each series, one per interval; None where a scrape had none."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._series: dict[str, list[str | None]] = {}
        self._began = time.monotonic()
        self._scrapes = 0
        self.events: dict[str, int] = {}

    def note(self, event: str) -> None:
        """Remember when something began, in seconds."""
        self.events[event] = self._scrapes * INTERVAL
        print(f"{self._scrapes * INTERVAL:5d} s  {event}", flush=True)

    def run(self, seconds: float) -> None:
        """Scrape for so long."""
        for _ in range(int(seconds // INTERVAL)):
            time.sleep(max(0, self._began + self._scrapes * INTERVAL - time.monotonic()))
            with urllib.request.urlopen(f"{self._url}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            for line in lines:
                if not line.startswith("#"):
                    name, value = line.rsplit(" ", 1)
                    found = self._series.setdefault(name, [])
                    found += [None] * (self._scrapes - len(found)) + [value]
            self._scrapes += 1

    def save(self) -> None:
        """Write the series, runs of equal values shortened."""
        series = [
            {"series": name, "values": " ".join(_shortened(values))}
            for name, values in sorted(self._series.items())
        ]
        data = {"interval": f"{INTERVAL}s", "events": self.events, "input_series": series}
        FILE.write_text(yaml.safe_dump(data, sort_keys=False, width=10_000))


def _shortened(values: list[str | None]) -> list[str]:
    words = []
    for value, run in itertools.groupby(values):
        more = len(list(run)) - 1
        number = "_" if value is None else f"{float(value):.10g}"
        word = number if not more else f"_x{more + 1}" if value is None else f"{number}+0x{more}"
        words.append(word)
    return words


def syphon(environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a syphon; return when it runs."""
    started = subprocess.Popen(
        [sys.executable, "-m", "pairbus", "syphon", "run"],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert started.stdout
    for line in started.stdout:
        if "syphon runs" in line:
            threading.Thread(target=started.stdout.read, daemon=True).start()
            return started
    raise RuntimeError("the syphon ended")


def main() -> None:
    """Run the outage and write the file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        broker.run("contoso") as primary,
        broker.run("contoso-dr") as secondary,
    ):
        primary.create_queue("orders")
        ledger = f"{folder}/ledger"
        options = pair_options(
            primary, secondary, failover_interval=0, ping_primary_interval=5,
            backlog_queue_count=1, ledger=ledger,
        )  # fmt: skip
        environment = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
            "PAIRBUS_PRIMARY_NAMESPACE": "contoso",
            "PAIRBUS_LEDGER": ledger,
            "PAIRBUS_CHECKPOINT": f"{folder}/checkpoint",
        }
        pair = Pair(
            primary=Endpoint(primary.connection_string),
            secondary=Endpoint(secondary.connection_string),
            explicit_namespace="contoso",
            ledger=ledger,
        )
        stop = threading.Event()
        with (
            pair_namespace(primary.client(), options) as client,
            client.get_queue_sender("orders") as sender,
            serving(pair, refresh=5) as page,
        ):

            def send() -> None:
                while not stop.wait(0.5):
                    sender.send_messages(ServiceBusMessage("an order"))

            sending = threading.Thread(target=send)
            sending.start()
            running = syphon(environment)
            recording = Recording(page.url.split("/?")[0].rstrip("/"))
            try:
                recording.note("healthy")
                recording.run(120)
                recording.note("outage")
                primary.kill()
                recording.run(360)
                recording.note("recovery")
                primary.start()
                recording.run(180)
                recording.note("syphon killed")
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
                recording.run(60)
                recording.note("second outage")
                primary.kill()
                recording.run(60)
                recording.note("second recovery, without a syphon")
                primary.start()
                recording.run(420)
                recording.note("syphon started again")
                running = syphon(environment)
                recording.run(120)
                recording.note("a message without a destination")
                with (
                    secondary.client() as other,
                    other.get_queue_sender(BACKLOG) as backlog,
                ):
                    backlog.send_messages(ServiceBusMessage("where to?"))
                recording.run(90)
            finally:
                stop.set()
                sending.join()
                os.killpg(running.pid, signal.SIGTERM)
                running.wait()
            recording.save()


if __name__ == "__main__":
    main()
