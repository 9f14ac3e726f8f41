"""The watch over a send in a task: it ends at its deadline, and never one that comes later."""

import asyncio
from time import monotonic

import pytest

from pairbus._watch import AWatch


async def never():
    await asyncio.Event().wait()


async def test_what_never_ends_is_ended_at_the_deadline():
    watch = AWatch()

    with pytest.raises(TimeoutError):
        async with watch.until(monotonic() + 0.02, None):
            await never()

    assert asyncio.current_task().cancelling() == 0


async def test_the_timer_of_one_send_does_not_end_the_next():
    watch = AWatch()
    async with watch.until(monotonic() + 0.05, None):
        pass

    async with watch.until(monotonic() + 30, None):
        await asyncio.sleep(0.15)  # the first one's deadline comes and goes

    with pytest.raises(TimeoutError):
        async with watch.until(monotonic() + 0.02, None):
            await never()


async def test_a_cancellation_from_outside_stays_one():
    watch = AWatch()
    entered = asyncio.Event()

    async def send():
        async with watch.until(monotonic() + 30, None):
            entered.set()
            await never()

    task = asyncio.create_task(send())
    await entered.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_before_the_deadline_is_passed_on():
    watch = AWatch()

    with pytest.raises(KeyError):
        async with watch.until(monotonic() + 30, None):
            raise KeyError


def test_a_watch_goes_on_in_another_event_loop():
    watch = AWatch()

    async def use(seconds):
        async with watch.until(monotonic() + seconds, None):
            await never() if seconds < 1 else None

    asyncio.run(use(30))
    with pytest.raises(TimeoutError):
        asyncio.run(use(0.02))
