# generated from tests/pairing/_async/test_reconnecting.py by tools/gen_unasync.py; edit that one
"""Calls that wait to connect to the secondary are woken by the first that gets through."""

from time import monotonic

from pairbus.pairing._sync.reconnecting import Reconnecting
from pairbus.pairing.runtime import sleep, spawn


def test_the_first_call_that_connects_wakes_the_others():
    reconnecting = Reconnecting()
    tasks = [spawn(reconnecting.wait, 600.0) for _ in range(20)]
    while reconnecting.waiting < 20:
        sleep(0.001)

    reconnecting.connected()

    assert all([task.join(60) for task in tasks])
    assert reconnecting.waiting == 0


def test_a_call_that_waits_later_is_not_woken_by_an_earlier_success():
    reconnecting = Reconnecting()
    first = spawn(reconnecting.wait, 600.0)
    while not reconnecting.waiting:
        sleep(0.001)
    reconnecting.connected()
    assert first.join(60)

    started = monotonic()
    reconnecting.wait(0.05)

    assert monotonic() - started >= 0.04
