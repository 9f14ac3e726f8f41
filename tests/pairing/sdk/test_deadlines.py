"""The watch over a send in a task: it ends at its deadline, and never one that comes later."""

import asyncio
import threading
import time
from time import monotonic

import pytest

from pairbus.pairing.sdk import deadlines
from pairbus.pairing.sdk.deadlines import AWatch


class Sender:
    """An SDK sender whose sends are whatever is to be sent: coroutine functions."""

    async def send_messages(self, what, *, timeout):
        assert timeout > 0
        await what()


async def send(watch, seconds, what):
    await watch.send(Sender(), what, monotonic() + seconds, seconds)


async def never():
    await asyncio.Event().wait()


async def at_once():
    pass


async def test_what_never_ends_is_ended_at_the_deadline():
    watch = AWatch()

    with pytest.raises(TimeoutError):
        await send(watch, 0.02, never)

    assert asyncio.current_task().cancelling() == 0


async def test_the_timer_of_one_send_does_not_end_the_next():
    watch = AWatch()
    await send(watch, 0.05, at_once)

    # The first one's deadline comes and goes.
    await send(watch, 30, lambda: asyncio.sleep(0.15))

    with pytest.raises(TimeoutError):
        await send(watch, 0.02, never)


async def test_the_timer_of_one_send_ends_the_next_if_that_is_not_over_by_then():
    watch = AWatch()
    await send(watch, 0.02, at_once)

    with pytest.raises(TimeoutError):
        await send(watch, 0.05, never)
    with pytest.raises(TimeoutError):
        await send(watch, 0.02, never)


async def test_a_cancellation_from_outside_stays_one():
    watch = AWatch()
    entered = asyncio.Event()

    async def enter():
        entered.set()
        await never()

    task = asyncio.create_task(send(watch, 30, enter))
    await entered.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_outside_stays_one_at_the_deadline_too():
    watch = AWatch()
    seen = []

    async def cancelled_twice():
        try:
            await never()
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def caller():
        try:
            await send(watch, 0.02, cancelled_twice)
        finally:
            seen.append(asyncio.current_task().cancelling())

    task = asyncio.create_task(caller())

    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [1], "the watch takes back its own, and no other"


async def test_a_send_that_comes_through_at_the_deadline_is_no_timeout():
    watch = AWatch()

    async def comes_through():
        try:
            await never()
        except asyncio.CancelledError:
            pass

    await send(watch, 0.02, comes_through)

    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(0)


async def test_silence_is_reported_once_and_only_for_the_send_that_has_no_answer():
    reports, silent = [], asyncio.Event()

    def report():
        reports.append(monotonic())
        silent.set()

    watch = AWatch(0.05, report)
    await send(watch, 30, at_once)
    await asyncio.sleep(0.1)
    assert reports == [], "the first send was answered"
    assert not watch.give_up()

    task = asyncio.create_task(send(watch, 30, never))
    await silent.wait()
    await asyncio.sleep(0.1)  # a second report would come by now
    assert watch.give_up()

    with pytest.raises(TimeoutError):
        await task
    assert len(reports) == 1


async def test_send_whose_silence_was_reported_can_be_given_up():
    silent = asyncio.Event()
    watch = AWatch(0.02, silent.set)
    task = asyncio.create_task(send(watch, 30, never))
    await silent.wait()

    assert watch.give_up()

    with pytest.raises(TimeoutError):
        await task
    assert task.cancelling() == 0


async def test_send_that_is_given_up_at_its_deadline_is_cancelled_once(monkeypatch):
    silent = asyncio.Event()
    watch = AWatch(0.01, silent.set)

    async def blocks_past_its_deadline():
        await silent.wait()
        assert watch.give_up()
        # The timer of the deadline is due when the loop goes on.
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 60)
        try:
            await never()
        finally:
            await asyncio.sleep(0.01)  # a clean-up that waits

    with pytest.raises(TimeoutError):
        await send(watch, 30, blocks_past_its_deadline)

    assert asyncio.current_task().cancelling() == 0


async def test_send_that_follows_a_silent_one_is_not_given_up_for_it():
    silent, entered = asyncio.Event(), asyncio.Event()
    watch = AWatch(0.02, silent.set)
    task = asyncio.create_task(send(watch, 30, never))
    await silent.wait()
    assert watch.give_up()
    with pytest.raises(TimeoutError):
        await task

    async def enter():
        entered.set()
        assert not watch.give_up(), "it has been under way for a moment"

    await send(watch, 30, enter)
    assert entered.is_set()


@pytest.mark.parametrize("seconds", [0.02, 30])
async def test_an_error_is_passed_on(seconds):
    watch = AWatch()

    async def fail():
        if seconds < 1:
            try:
                await never()
            except asyncio.CancelledError:
                pass
        raise KeyError

    with pytest.raises(KeyError):
        await send(watch, seconds, fail)
    assert asyncio.current_task().cancelling() == 0


def test_a_watch_goes_on_in_another_event_loop():
    watch = AWatch()

    asyncio.run(send(watch, 30, at_once))
    with pytest.raises(TimeoutError):
        asyncio.run(send(watch, 0.02, never))


class Hanging:
    """An SDK sender whose send ends when its connection is cut."""

    def __init__(self):
        self.cut = threading.Event()

    def send_messages(self, what, *, timeout):
        assert self.cut.wait(60)


def test_threads_are_watched_after_the_thread_of_the_watch_could_not_be_started(monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(deadlines, "hang_up", lambda sender: sender.cut.set())
    deadlines.reset()
    with monkeypatch.context() as changed:
        changed.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="start new thread"):
            deadlines.Watch()

    deadlines.Watch().send(Hanging(), "x", monotonic(), 0.0)  # ends when the watchdog cuts it


def test_threads_are_watched_after_a_callback_has_failed(monkeypatch):
    def fail():
        failed.set()
        raise RuntimeError("can't start new thread")

    failed, first, second = threading.Event(), Hanging(), Hanging()
    monkeypatch.setattr(deadlines, "hang_up", lambda sender: sender.cut.set())
    sending = threading.Thread(
        target=deadlines.Watch(0.0, fail).send, args=(first, "x", monotonic() + 60, 60.0)
    )
    sending.start()
    assert failed.wait(60)

    deadlines.Watch().send(second, "x", monotonic(), 0.0)  # ends when the watchdog cuts it

    first.cut.set()
    sending.join(60)
