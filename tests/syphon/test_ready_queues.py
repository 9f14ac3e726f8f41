"""A cold start reads at once what was counted: the first plan waits for no doorbell."""

import pytest

from pairbus.spark.driver import open_coordinator
from pairbus.spark.options import parse
from tests.syphon.conftest import PREFIX, backlog_message


@pytest.mark.slow
def test_the_first_plan_reads_queues_that_are_known_to_have_messages(pair, tmp_path):
    pair.fill([backlog_message("orders", 1)])
    options = {
        "connectionString": pair.secondary.connection_string, "mode": "peekLock",
        "queue": f"{PREFIX}/0,{PREFIX}/1", "readyQueues": f"{PREFIX}/0",
        "stateLocation": str(tmp_path),
    }  # fmt: skip
    coordinator = open_coordinator(parse(options, "read"))
    coordinator.start()
    try:
        assert [grant.queue for grant in coordinator.plan(0)] == [f"{PREFIX}/0"]
    finally:
        coordinator.close()
