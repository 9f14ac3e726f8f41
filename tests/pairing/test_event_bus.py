"""Events reach the log and the observers, and nothing that an observer does costs a message."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from pairbus import events
from pairbus.pairing import event_bus
from pairbus.pairing.event_bus import EventBus


def unavailable(bus, entity="orders"):
    bus.emit(events.PairUnavailable, entity, primary="x" * 1000, secondary="y")


def test_failing_sends_log_one_line_and_then_one_a_minute_with_a_count(caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(event_bus, "monotonic", lambda: now[0])
    seen = []
    bus = EventBus("a>b", [seen.append])
    with caplog.at_level(logging.WARNING, "pairbus.events"):
        for _ in range(500):
            unavailable(bus)
            now[0] += 0.01
        unavailable(bus, "bills")
        now[0] += 60
        unavailable(bus)

    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[1] for line in lines] == ["orders", "bills", "orders"]
    assert lines[2].endswith("(499 more since the last line)")
    assert len(seen) == 502, "observers get every event"


def test_each_log_line_names_the_entity_and_the_pair(caplog):
    bus = EventBus("a>b", [])
    with caplog.at_level(logging.INFO, "pairbus.events"):
        bus.emit(events.Restored, "orders", by="ping", seconds=2.5)
        bus.emit(events.ClientClosed)

    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["Restored orders in a>b: by=ping, seconds=2.5", "ClientClosed a>b"]


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit])
def test_an_observer_that_raises_anything_stops_nothing(error):
    seen = []

    def broken(event):
        raise error("no")

    bus = EventBus("a>b", [broken, seen.append])
    unavailable(bus)

    assert len(seen) == 1


def test_an_observer_that_raises_keyboard_interrupt_stops_no_background_thread():
    seen = []

    def broken(event):
        raise KeyboardInterrupt

    bus = EventBus("a>b", [broken, seen.append])
    with ThreadPoolExecutor(1) as pool:
        pool.submit(unavailable, bus).result(60)
    assert len(seen) == 1

    with pytest.raises(KeyboardInterrupt):
        unavailable(bus)  # in the main thread it may be a signal


def test_repeated_events_do_not_push_out_the_beginning_of_an_outage():
    bus = EventBus("a>b", [])
    bus.emit(events.FailedOver, "orders", reason="refused", failing_since=None)
    for _ in range(1000):
        bus.emit(events.PingSent, "orders", succeeded=False, reason="refused")
        unavailable(bus)
    bus.emit(events.Restored, "orders", by="ping", seconds=3600.0)

    kept = [event.name for event in bus.recent]

    assert (kept[0], kept[-1]) == ("FailedOver", "Restored")
    assert len(kept) <= 200
    assert [event.at for event in bus.recent] == sorted(event.at for event in bus.recent)
