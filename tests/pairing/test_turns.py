"""The lock of a link: one at a time, in order, with a deadline, whoever gives up meanwhile."""

import asyncio
import threading
from time import monotonic

import pytest

from pairbus.pairing.runtime import ALock, Lock


def far():
    return monotonic() + 30


async def settle():
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_tasks_get_it_in_the_order_in_which_they_came():
    lock, got = ALock(), []

    async def take(name):
        assert await lock.acquire(far())
        got.append(name)
        await settle()
        lock.release()

    assert lock.now()
    tasks = [asyncio.create_task(take(name)) for name in range(5)]
    await settle()
    assert got == []
    lock.release()
    await asyncio.gather(*tasks)

    assert got == [0, 1, 2, 3, 4]
    assert lock.now()


async def test_nobody_overtakes_one_who_has_waited():
    lock = ALock()
    assert lock.now()
    waiting = asyncio.create_task(lock.acquire(far()))
    await settle()

    lock.release()

    assert not lock.now(), "it is the turn of the one who waited, who has not woken up yet"
    assert await waiting
    lock.release()
    assert lock.now()


async def test_waiting_has_a_deadline_and_the_next_one_gets_the_turn():
    lock = ALock()
    assert lock.now()
    late = asyncio.create_task(lock.acquire(monotonic() + 0.02))
    patient = asyncio.create_task(lock.acquire(far()))

    assert not await late
    lock.release()

    assert await patient
    assert not await lock.acquire(monotonic() - 1)
    lock.release()
    assert lock.now()


async def test_a_waiting_task_that_is_cancelled_is_passed_over():
    lock = ALock()
    assert lock.now()
    first, second = (asyncio.create_task(lock.acquire(far())) for _ in range(2))
    await settle()
    first.cancel()
    await settle()

    lock.release()

    assert await second
    assert first.cancelled()
    lock.release()
    assert lock.now()


async def test_a_task_that_is_cancelled_when_its_turn_has_come_passes_it_on():
    lock = ALock()
    assert lock.now()
    first, second = (asyncio.create_task(lock.acquire(far())) for _ in range(2))
    await settle()

    lock.release()
    first.cancel()  # before it woke up

    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second
    lock.release()
    assert lock.now()


def test_threads_wait_no_longer_than_their_deadline():
    lock = Lock()
    assert lock.now()
    assert not lock.now()
    assert not lock.acquire(monotonic() + 0.02)
    assert not lock.acquire(monotonic() - 1)

    got = []
    thread = threading.Thread(target=lambda: got.append(lock.acquire(far())))
    thread.start()
    lock.release()
    thread.join(10)

    assert got == [True]
