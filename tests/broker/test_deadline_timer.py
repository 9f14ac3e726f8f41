"""The timer of a namespace follows the wall clock, also if that is set."""

import asyncio
from unittest.mock import Mock

import pytest

from pairbus.broker.entities.messages import NEVER
from pairbus.broker.namespace.timer import DeadlineTimer


class Loop:
    """An event loop whose timers a test lets fire; `now` is the wall clock in milliseconds."""

    def __init__(self):
        self.now = 1_000_000
        self.timers = []

    def call_later(self, delay, callback):
        self.timers.append((delay, callback))
        return Mock(asyncio.TimerHandle)

    def fire(self):
        delay, callback = self.timers.pop()
        self.now += int(delay * 1000)
        callback()


class Deadlines:
    """What is due, in milliseconds; ticks are counted."""

    def __init__(self, loop, due):
        self.due = due
        self.ticks = []
        self.error = None
        self.timer = DeadlineTimer(lambda: self.due, lambda: loop.now, self.tick)
        self.timer.start(loop)
        self.loop = loop

    def tick(self):
        self.ticks.append(self.loop.now)
        self.due = NEVER
        if self.error is not None:
            self.due = self.loop.now + 100
            raise self.error


def test_nothing_is_done_before_its_time():
    loop = Loop()
    deadlines = Deadlines(loop, loop.now + 2_500)
    loop.fire()
    loop.fire()
    assert deadlines.ticks == []
    loop.fire()
    assert deadlines.ticks == [1_002_500]
    assert not loop.timers, "nothing else is due"


def test_deadline_is_met_within_a_second_after_the_clock_was_set_forward():
    loop = Loop()
    deadlines = Deadlines(loop, loop.now + 60_000)
    loop.now += 60_000
    loop.fire()
    assert deadlines.ticks == [1_061_000]


def test_deadline_is_not_met_early_after_the_clock_was_set_back():
    loop = Loop()
    deadlines = Deadlines(loop, loop.now + 1_000)
    loop.now -= 60_000
    loop.fire()
    assert deadlines.ticks == []
    assert loop.timers


def test_deadlines_are_watched_after_an_action_has_failed():
    loop = Loop()
    deadlines = Deadlines(loop, loop.now + 500)
    deadlines.error = ValueError("failed")
    with pytest.raises(ValueError, match="failed"):
        loop.fire()
    deadlines.error = None
    loop.fire()
    assert deadlines.ticks == [1_000_500, 1_000_600]
