"""A drain into a primary that throttles: it slows down, says so, and receives each message once."""

import time

import pytest

from tests.syphon.conftest import PREFIX, backlog_message

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MESSAGES = 900
CREDITS = 300.0  # a second: a ceiling of 200 messages


def received(pair):
    """Messages that the backlog queues handed out."""
    return sum(
        numbers["messages"]
        for queue, kinds in pair.secondary.operations.items()
        if queue.startswith(PREFIX)
        for kind, numbers in kinds.items()
        if kind.startswith("receive")
    )


def test_a_throttled_drain_stays_below_its_ceiling_and_receives_each_message_once(pair, spark):
    from pairbus.spark.syphon import Bounds, start_syphon

    pair.primary.create_queue("orders")
    for index in (0, 1):
        pair.fill([backlog_message("orders", n, more={"q": index}) for n in range(450)], index)
    before = received(pair)
    options = pair.options(credits_per_second=CREDITS)
    throttled, arrivals = set(), []
    with pair.primary.faults.throttle(entity="orders", nth=4, times=2):
        handle = start_syphon(options, spark=spark, bounds=Bounds(until_empty=True))
        while not handle.wait(0.2):
            status = handle.status()
            throttled.add(status["throttled_by"])
            arrivals.append((time.monotonic(), status["forwarded"]))
    got = pair.take("orders", MESSAGES)
    for index in (0, 1):
        numbers = [m.message.application_properties for m in got]
        assert [p["n"] for p in numbers if p["q"] == index] == list(range(450))
    assert "primary" in throttled
    assert received(pair) - before <= 1.1 * MESSAGES
    began, early = next(one for one in arrivals if one[1])
    ended, late = next(one for one in arrivals if one[1] >= 0.9 * MESSAGES)
    assert late - early <= 1.5 * CREDITS * (ended - began)
    assert handle.status()["allowed_rate"] <= CREDITS * 2 / 3
