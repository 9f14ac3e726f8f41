"""The parts of the demo: timing, entities, pair, syphon and reports."""

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairbus import (
    PairedClient,
    SendAvailabilityPairedNamespaceOptions,
    aio,
    pair_namespace,
)
from pairbus.administration import aio_admin_client
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.monitoring.formatting import to_plain
from pairbus.options import Observer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pairbus.spark.syphon import SyphonHandle

PRIMARY, SECONDARY = "contoso", "contoso-dr"
ORDERS, BILLS, NEWS = "orders", "bills", "news"
DETECTING = {ORDERS, NEWS}
SESSIONS = {"sync": ["north", "south"], "aio": ["east", "west"]}


@dataclasses.dataclass(frozen=True)
class Timing:
    """How long the acts last, in seconds, and how much is sent."""

    healthy: float = 12.0
    outage: float = 30.0
    after: float = 5.0
    failover_interval: float = 4.0
    ping_interval: float = 3.0
    pace: float = 25.0  # messages a second of each sender
    queues: int = 4
    drain: float | None = 400.0  # messages a second at most, so that the drain can be seen


NORMAL = Timing()
FAST = Timing(
    healthy=3.0,
    outage=6.0,
    after=2.0,
    failover_interval=1.0,
    ping_interval=1.0,
    queues=2,
    drain=None,
)


def write_entities(path: Path) -> Path:
    """Write the primary's entities, in the format of the official emulator."""
    detection = {
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": "PT1H",
    }
    subscription = {"Name": "all", "Properties": {}}
    namespace = {
        "Name": PRIMARY,
        "Queues": [
            {"Name": ORDERS, "Properties": {"RequiresSession": True, **detection}},
            {"Name": BILLS, "Properties": {}},
        ],
        "Topics": [{"Name": NEWS, "Properties": detection, "Subscriptions": [subscription]}],
    }
    config = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}
    path.write_text(json.dumps(config, indent=2))
    return path


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoPair(Pair):
    """The pair of the demo, once its two brokers run."""

    timing: Timing

    @classmethod
    def of(cls, primary: str, secondary: str, folder: Path, timing: Timing) -> "DemoPair":
        """Return the pair of two connection strings, with ledger and checkpoint in a folder."""
        return cls(
            name="demo",
            primary=Endpoint(primary),
            secondary=Endpoint(secondary),
            explicit_namespace=PRIMARY,
            backlog_queue_count=timing.queues,
            ledger=str(folder / "ledger"),
            checkpoint=str(folder / "checkpoint"),
            timing=timing,
        )

    @contextlib.contextmanager
    def client(self, observer: Observer) -> Iterator[PairedClient]:
        """The paired client of `pairbus`."""
        with (
            self.secondary_admin() as admin,
            pair_namespace(
                self.require_primary().client(retry_total=0),
                self._options(self.secondary_client(retry_total=0), admin, observer),
            ) as client,
        ):
            yield client

    @contextlib.asynccontextmanager
    async def aio_client(self, observer: Observer) -> AsyncIterator[aio.PairedClient]:
        """The paired client of `pairbus.aio`."""
        from azure.servicebus.aio import ServiceBusClient as AioClient

        primary, secondary = (
            AioClient.from_connection_string(endpoint.value, retry_total=0)
            for endpoint in (self.require_primary(), self.require_secondary())
        )
        async with (
            aio_admin_client(self.require_secondary().value) as admin,
            await aio.pair_namespace(primary, self._options(secondary, admin, observer)) as client,
        ):
            yield client

    def _options(
        self, secondary: Any, admin: Any, observer: Observer
    ) -> SendAvailabilityPairedNamespaceOptions:
        return SendAvailabilityPairedNamespaceOptions(
            secondary=secondary,
            secondary_admin=admin,
            primary_namespace=PRIMARY,
            backlog_queue_count=self.timing.queues,
            failover_interval=self.timing.failover_interval,
            ping_primary_interval=self.timing.ping_interval,
            send_timeout=5.0,
            ledger=self.ledger,
            observers=[observer],
        )

    def start_syphon(self, spark: "SparkSession") -> "SyphonHandle":
        """Start the syphon between the two."""
        from pairbus.spark.syphon import start_syphon

        options = self.syphon_options(max_messages_per_second=self.timing.drain)
        return start_syphon(options, spark=spark)

    def environment(self) -> dict[str, str]:
        """Environment variables that select this pair while it runs."""
        return {
            "PAIRBUS_PRIMARY": self.require_primary().value,
            "PAIRBUS_SECONDARY": self.require_secondary().value,
            "PAIRBUS_PRIMARY_NAMESPACE": PRIMARY,
            "PAIRBUS_LEDGER": self.require_ledger(),
            "PAIRBUS_CHECKPOINT": str(self.checkpoint),
        }


def start_spark() -> "SparkSession":
    """Start a session and warm it up: the first job and the first Python worker are slow."""
    from pairbus.spark.session import get_session

    spark = get_session(master="local[2]", app_name="pairbus demo")
    spark.sparkContext.parallelize(range(2), 2).map(str).count()
    return spark


def run_reports(spark: "SparkSession", ledger: str) -> tuple[bool, str, dict[str, Any]]:
    """Return whether the ledger shows no loss, its verdict in a line, and the cost."""
    from pairbus.reports.cost_report import cost_report
    from pairbus.reports.price_lists import load_prices
    from pairbus.reports.reconciliation import balance

    found = balance(spark, ledger)
    report = cost_report(spark, ledger, load_prices(), subscriptions={NEWS: 1})
    cost = {
        "currency": report.currency,
        "prices_of": report.prices_of,
        "total": report.total.spent,
        "extra": report.extra.spent,
        "operations": report.total.operations,
        "stages": [
            {
                "stage": line.name[0],
                "is_derived": "derived" in line.name,
                "messages": line.messages,
                "operations": line.operations,
                "cost": line.spent,
            }
            for line in report.by_stage
        ],
    }
    return found.totals.get("lost", 0) == 0, found.verdict, to_plain(cost)
