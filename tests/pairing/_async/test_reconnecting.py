"""Calls that wait to connect to the secondary are woken by the first that gets through."""

from time import monotonic

from pairbus.pairing._async.reconnecting import Reconnecting
from pairbus.pairing.runtime import asleep, aspawn


async def test_the_first_call_that_connects_wakes_the_others():
    reconnecting = Reconnecting()
    tasks = [aspawn(reconnecting.wait, 600.0) for _ in range(20)]
    while reconnecting.waiting < 20:
        await asleep(0.001)

    reconnecting.connected()

    assert all([await task.join(60) for task in tasks])
    assert reconnecting.waiting == 0


async def test_a_call_that_waits_later_is_not_woken_by_an_earlier_success():
    reconnecting = Reconnecting()
    first = aspawn(reconnecting.wait, 600.0)
    while not reconnecting.waiting:
        await asleep(0.001)
    reconnecting.connected()
    assert await first.join(60)

    started = monotonic()
    await reconnecting.wait(0.05)

    assert monotonic() - started >= 0.04
