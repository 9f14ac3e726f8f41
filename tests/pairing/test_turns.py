"""The lock of a link: one at a time, in order, with a deadline, whoever gives up meanwhile."""

import asyncio
import threading
import weakref
from collections import deque
from time import monotonic
from types import SimpleNamespace

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.pairing._async.coalescer import Coalescer, Sharing, single_of
from pairbus.pairing.core.coalescing import Coalescing
from pairbus.pairing.turns import ALock, Lock, Request, Turn


def far():
    return monotonic() + 30


async def settle():
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_tasks_get_it_in_the_order_in_which_they_came():
    lock, got = ALock(), []

    async def take(name):
        assert await lock.acquire(name, far())
        got.append(name)
        await settle()
        lock.release(name)

    assert lock.now("first")
    tasks = [asyncio.create_task(take(f"task {number}")) for number in range(5)]
    await settle()
    assert got == []
    lock.release("first")
    await asyncio.gather(*tasks)

    assert got == [f"task {number}" for number in range(5)]
    assert lock.now("last")


async def test_nobody_overtakes_one_who_has_waited():
    lock = ALock()
    assert lock.now("a")
    waiting = asyncio.create_task(lock.acquire("b", far()))
    await settle()

    lock.release("a")

    assert not lock.now("c"), "it is the turn of the one who waited, who has not woken up yet"
    assert await waiting
    lock.release("b")
    assert lock.now("c")


async def test_waiting_has_a_deadline_and_the_next_one_gets_the_turn():
    lock = ALock()
    assert lock.now("a")
    late = asyncio.create_task(lock.acquire("late", monotonic() + 0.02))
    patient = asyncio.create_task(lock.acquire("patient", far()))

    assert not await late
    lock.release("late")  # it has nothing to give back
    assert not lock.now("c")
    lock.release("a")

    assert await patient
    assert not await lock.acquire("c", monotonic() - 1)


@pytest.mark.parametrize("is_handed_over", [True, False])
async def test_a_task_that_is_cancelled_passes_its_turn_on(is_handed_over):
    lock = ALock()
    assert lock.now("a")

    async def take(name):
        try:
            return await lock.acquire(name, far())
        finally:
            if name == "first":
                lock.release(name)

    first, second = (asyncio.create_task(take(name)) for name in ("first", "second"))
    await settle()
    if is_handed_over:
        lock.release("a")
    first.cancel()
    await settle()
    if not is_handed_over:
        lock.release("a")

    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second


async def test_task_that_is_cancelled_takes_no_other_message_of_its_list_with_it():
    lock, counted, sent = ALock(), [], []
    connection = SimpleNamespace(name="q", batch_limit=0)
    sharing = Sharing(Coalescing(), lambda error: False, counted.append)
    coalescer = Coalescer(lock, sharing, connection)
    entered, answered = asyncio.Event(), asyncio.Event()

    async def transmit(what, deadline):
        sent.append([str(message) for message in what])
        entered.set()
        await answered.wait()

    first = Turn()
    assert lock.now(first)
    requests, tasks = [], []
    for body in "abcd":
        message = ServiceBusMessage(body)
        requests.append(Request(message, single_of(message), far(), None))
        tasks.append(asyncio.create_task(lock.acquire(requests[-1], far())))
    await settle()
    tasks[0].cancel()  # while it waits
    await settle()
    coalescer.release(first, transmit)
    await entered.wait()
    tasks[1].cancel()  # while it is on the wire
    await settle()
    answered.set()

    assert await asyncio.gather(*tasks[2:]) == [False, False], "nobody got the turn"
    assert sent == [["b", "c", "d"]]
    assert [request.answer for request in requests[2:]] == [True, True]
    assert [len(sizes) for sizes in counted] == [3], "what was sent is in the ledger"
    await settle()
    assert lock.now(Turn())


def test_threads_wait_no_longer_than_their_deadline_and_get_it_in_order():
    lock = Lock()
    first, second = Turn(), Turn()
    assert lock.now(first)
    assert not lock.now(second)
    assert not lock.acquire(second, monotonic() + 0.02)
    assert not lock.acquire(second, monotonic() - 1)

    got = []

    def take(name):
        turn = Turn()
        got.append((name, lock.acquire(turn, far())))
        lock.release(turn)

    threads = []
    for name in ("c", "d"):
        threads.append(threading.Thread(target=take, args=(name,)))
        threads[-1].start()
        while len(lock.waiters) + len(got) < len(threads):
            threading.Event().wait(0.001)
    lock.release(first)
    for thread in threads:
        thread.join(60)

    assert got == [("c", True), ("d", True)]
    assert lock.now(second)


def test_a_lock_is_free_if_the_last_waiter_gives_up_while_it_is_released():
    class GivesUp(deque):
        def popleft(self):
            self.clear()  # another thread removes itself at this moment
            return super().popleft()

    lock, owner, waiter = Lock(), Turn(), Turn()
    assert lock.now(owner)
    lock.waiters = GivesUp([(weakref.ref(waiter), threading.Event())])

    lock.release(owner)

    assert lock.now(Turn())


def test_a_thread_that_is_handed_the_lock_while_it_looks_has_the_lock():
    class HandedWhileLooking(Lock):
        def now(self, turn):
            is_free = super().now(turn)
            if turn is waiter and turn in self.waiting():
                self.release(owner)
            return is_free

    lock, owner, waiter = HandedWhileLooking(), Turn(), Turn()
    assert lock.now(owner)

    assert lock.acquire(waiter, monotonic() + 60)
    assert lock.has(waiter)


def test_a_request_that_is_answered_while_its_thread_looks_does_not_get_the_turn():
    """It would be sent a second time."""

    class AnsweredWhileLooking(Lock):
        def now(self, turn):
            if request in self.waiting():
                [taken] = self.take([request])
                self.answer(taken, True)
                self.release(owner)
            return super().now(turn)

    lock, owner, request = AnsweredWhileLooking(), Turn(), Request("a", None, far(), None)
    assert lock.now(owner)

    assert not lock.acquire(request, far())
    assert request.answer is True


def test_the_next_waiter_takes_back_a_turn_whose_owner_is_gone():
    lock = Lock()
    assert lock.now(Turn())  # gone as soon as it was taken
    mine = Turn()
    assert lock.now(mine)
    theirs = Turn()
    threading.Timer(0.05, lambda: lock.__setattr__("_owner", None)).start()
    assert lock.acquire(theirs, far())
