"""The trigger `availableNow`: Spark ends the query at the first plan without work."""

import pytest

from pairbus.spark import source
from pairbus.spark.options import parse
from pairbus.syphon.limits import Grant
from pairbus.syphon.target import OptionError

OPTIONS = {
    "connectionString": "Endpoint=sb://contoso;SharedAccessKeyName=a;SharedAccessKey=b",
    "queue": "orders", "mode": "peekLock", "stateLocation": "/nowhere",
}  # fmt: skip


class Coordinator:
    """Has `plans` until it has something to read; until then `orders` is uncertain."""

    def __init__(self, plans):
        self.plans = plans

    def start(self):
        pass

    def empty_once(self):
        pass

    def plan(self, epoch):
        self.plans -= 1
        return (Grant("orders", 1, 1),) if self.plans == 0 else ()

    def grants(self, epoch):
        return (Grant("orders", 1, 1),)

    def pace(self, tasks):
        return None

    def uncertain_queues(self):
        return ["orders"] if self.plans > 0 else []


@pytest.fixture
def stream(monkeypatch):
    def make(plans):
        monkeypatch.setattr("pairbus.spark.driver.open_coordinator", lambda _: Coordinator(plans))
        monkeypatch.setattr(source, "PLAN_AGAIN", 0)
        return source.ReceiveStream(parse(OPTIONS, "read"))

    return make


def test_a_bounded_stream_waits_for_queues_with_locks_of_a_lost_reader(stream):
    bounded = stream(plans=3)
    bounded.prepareForTriggerAvailableNow()
    assert bounded.latestOffset({"epoch": 4}, None) == {"epoch": 5}
    (partition,) = bounded.partitions({"epoch": 4}, {"epoch": 5})
    assert partition.must_read


def test_a_bounded_stream_ends_when_no_queue_has_messages(stream):
    bounded = stream(plans=0)
    bounded.prepareForTriggerAvailableNow()
    assert bounded.latestOffset({"epoch": 4}, None) == {"epoch": 4}


def test_a_bounded_stream_fails_if_lost_locks_cannot_be_checked(stream, monkeypatch):
    monkeypatch.setattr(source, "LONGEST_WAIT", -1)
    bounded = stream(plans=1000)
    bounded.prepareForTriggerAvailableNow()
    with pytest.raises(RuntimeError, match="orders: cannot be checked for lost locks"):
        bounded.latestOffset({"epoch": 4}, None)


def test_a_stream_without_an_end_does_not_wait(stream):
    endless = stream(plans=3)
    assert endless.latestOffset({"epoch": 4}, None) == {"epoch": 4}
    (partition,) = endless.partitions({"epoch": 4}, {"epoch": 5})
    assert not partition.must_read


@pytest.mark.parametrize("mode", ["peekLock", "receiveAndDelete"])
def test_a_stream_that_receives_needs_a_place_for_the_reports_of_its_tasks(mode):
    options = {name: value for name, value in OPTIONS.items() if name != "stateLocation"}
    with pytest.raises(OptionError, match=rf"stateLocation: is missing \(a {mode} stream needs it"):
        source.ServiceBusSource({**options, "mode": mode}).streamReader(None)
