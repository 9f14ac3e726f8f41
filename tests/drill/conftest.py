"""A pair of embedded namespaces that a drill finds in order, and what a test breaks of it."""

from datetime import timedelta

import pytest

from pairbus import broker
from pairbus.broker.entities.model import QueueDescription
from pairbus.drill.drill import Drill
from pairbus.drill.settings import Settings
from pairbus.monitoring.backlog_queues import create_missing
from pairbus.monitoring.endpoints import Endpoint, Pair

QUEUES = 2
BACKLOG = "contoso/x-servicebus-transfer/0"
ORDERS = {
    "requires_duplicate_detection": True,
    "duplicate_detection_history_time_window": timedelta(hours=1),
}


class World:
    """Two namespaces and their pair."""

    def __init__(self, primary, secondary) -> None:
        self.primary = primary
        self.secondary = secondary
        self.pair = self.with_strings(primary.connection_string, secondary.connection_string)

    @staticmethod
    def with_strings(primary: str, secondary: str, name: str = "contoso", count: int = QUEUES):
        return Pair(
            primary=Endpoint(primary),
            secondary=Endpoint(secondary),
            explicit_namespace=name,
            backlog_queue_count=count,
        )

    def drill(self, pair=None, **settings) -> Drill:
        quick = {
            "failover_interval": 0.0,
            "ping_interval": 1.0,
            "messages": 3,
            "syphon": "here",
            "notice": 0.0,
            "send_timeout": 60.0,
        }
        return Drill(pair or self.pair, Settings(**{**quick, **settings}))

    def findings(self, pair=None, **settings) -> dict[str, str]:
        """What the checks object to: the check's name, and what it says."""
        drill = self.drill(pair, **settings)
        drill.check()
        return named(drill.report)

    def replace_backlog_queue(self, **properties) -> None:
        self.secondary.do(lambda ns: ns.admin.delete_queue(BACKLOG))
        self.secondary.do(lambda ns: ns.admin.create(QueueDescription(BACKLOG, **properties)))


def named(report) -> dict[str, str]:
    """The findings that are not ok."""
    found = [finding for finding in report.findings if finding.level != "ok"]
    assert all(finding.why and finding.remedy for finding in found)
    return {finding.check: f"{finding.level}: {finding.what}" for finding in found}


@pytest.fixture(scope="module")
def namespaces():
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        yield primary, secondary


@pytest.fixture
def world(namespaces):
    """A pair in order; what a test changed is undone."""
    primary, secondary = namespaces
    world = World(primary, secondary)
    create_missing(world.pair, QUEUES)
    primary.create_queue("orders", **ORDERS)
    yield world
    for namespace in namespaces:
        namespace.faults.clear()
        with namespace.admin_client() as admin:
            for queue in admin.list_queues():
                admin.delete_queue(queue.name)
