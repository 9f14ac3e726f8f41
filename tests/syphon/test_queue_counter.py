"""The backlog queues are discovered, whatever their number."""

import pytest

from pairbus import broker
from pairbus.exceptions import SyphonError
from pairbus.options import SyphonOptions
from pairbus.syphon.queue_counter import QueueCounter
from pairbus.syphon.setup import Setup

PATHS = [f"contoso/x-servicebus-transfer/{number}" for number in (0, 2, 10, 11)]


@pytest.fixture(scope="module")
def secondary():
    with broker.run("contoso-dr") as namespace:
        for path in [*PATHS, "fabrikam/x-servicebus-transfer/0", "orders"]:
            namespace.create_queue(path)
        yield namespace


def counter_of(secondary, tmp_path, name="contoso"):
    options = SyphonOptions(
        primary="Endpoint=sb://contoso.example/;SharedAccessKeyName=a;SharedAccessKey=b",
        secondary=secondary.connection_string,
        primary_namespace=name,
        checkpoint=str(tmp_path),
    )
    calls = []
    return QueueCounter(Setup.of(options), calls.append), calls


def test_the_queues_of_the_pair_are_found_in_the_order_of_their_numbers(secondary, tmp_path):
    counter, calls = counter_of(secondary, tmp_path)
    counts = counter.check()
    assert [queue.path for queue in counts] == PATHS
    assert len(calls) == 1 + len(PATHS)  # one listing, and one call for each queue that exists
    counter.close()


def test_a_pair_without_backlog_queues_is_an_error(secondary, tmp_path):
    counter, _ = counter_of(secondary, tmp_path, "adatum")
    with pytest.raises(SyphonError, match="there are no backlog queues adatum/"):
        counter.check()
    counter.close()
