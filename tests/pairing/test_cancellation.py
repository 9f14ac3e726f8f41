"""A task in the background ends when it is cancelled, also if the SDK loses the cancellation."""

import asyncio

import pytest

from pairbus.pairing.runtime import acheck_cancelled


async def test_lost_cancellation_is_raised_again():
    reached = []

    async def send_again_and_again():
        while True:
            acheck_cancelled()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                reached.append("lost")  # as `wait_for` does before Python 3.12

    task = asyncio.create_task(send_again_and_again())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reached == ["lost"]


async def test_task_that_is_not_cancelled_goes_on():
    acheck_cancelled()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(3600)
    acheck_cancelled()  # the time-out has taken its cancellation back
