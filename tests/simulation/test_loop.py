"""The seeded event loop, the network and the files of the simulation."""

import asyncio
import contextlib
import datetime
import os
import random
import threading
import time
import uuid

import pytest

import simulation
from pairbus.runtime import AsyncRuntime, Files
from simulation.loop import EPOCH

SEEDS = range(20)


def order_of(seed):
    async def main(loop):
        seen = []

        async def work(name):
            for n in range(3):
                seen.append(f"{name}{n}")
                await asyncio.sleep(0)

        await asyncio.gather(*(work(name) for name in "abc"))
        return seen

    return simulation.run(main, seed)


def test_same_seed_gives_the_same_order_and_the_same_trace():
    one, other = order_of(1), order_of(1)
    assert one[0] == other[0]
    assert one[1].trace.digest == other[1].trace.digest


def test_seeds_give_different_orders_that_keep_each_tasks_own():
    orders = {tuple(order_of(seed)[0]) for seed in SEEDS}
    assert len(orders) > 5
    for order in orders:
        for name in "abc":
            assert [one for one in order if one.startswith(name)] == [
                f"{name}{n}" for n in range(3)
            ]


def test_time_jumps():
    async def main(loop):
        before = time.time(), time.monotonic(), datetime.datetime.now(datetime.UTC)
        await asyncio.sleep(86400)
        return before, time.time(), time.monotonic(), datetime.datetime.now(datetime.UTC)

    began = time.monotonic()
    (before, wall, steady, now), _ = simulation.run(main, 1)
    assert time.monotonic() - began < 600
    assert wall - before[0] == pytest.approx(86400, abs=1)
    assert steady - before[1] == pytest.approx(86400, abs=1)
    assert now - before[2] == pytest.approx(datetime.timedelta(days=1), abs=datetime.timedelta(1))
    assert before[0] == pytest.approx(EPOCH, abs=1)


def test_random_numbers_and_identifiers_come_from_the_seed_and_go_back_afterwards():
    async def main(loop):
        return (
            uuid.uuid4(),
            uuid.uuid1(),
            os.urandom(4),
            random.random(),
            random.SystemRandom().random(),
        )

    state = random.getstate()
    assert simulation.run(main, 1)[0] == simulation.run(main, 1)[0]
    assert simulation.run(main, 1)[0] != simulation.run(main, 2)[0]
    assert random.getstate() == state
    assert uuid.uuid4() != uuid.uuid4()
    assert abs(time.time() - datetime.datetime.now(datetime.UTC).timestamp()) < 5


def test_thread_fails_the_run():
    async def main(loop):
        threading.Thread(target=print).start()

    with pytest.raises(simulation.SimulationError, match="thread was started"):
        simulation.run(main, 1)


def test_thread_of_before_keeps_the_real_functions():
    go, gone = threading.Event(), threading.Event()
    seen = []

    def run():
        go.wait()
        before = time.monotonic()
        inner = threading.Thread(target=seen.append, args=("started",))
        inner.start()
        inner.join()
        time.sleep(0.01)
        seen.append(time.monotonic() - before)
        seen.append(datetime.datetime.now(datetime.UTC))
        gone.set()

    outside = threading.Thread(target=run)
    outside.start()

    async def main(loop):
        go.set()
        gone.wait()
        return time.monotonic() == loop.time()

    try:
        assert simulation.run(main, 1)[0]
    finally:
        go.set()
        outside.join()
    started, slept, now = seen
    assert started == "started"
    assert slept >= 0.01
    assert abs(now - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(days=1)


def test_blocking_function_runs_without_a_thread():
    async def main(loop):
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return await asyncio.to_thread(divmod, 7, 2)

    assert simulation.run(main, 1)[0] == (3, 1)


def test_blocked_loop_fails_the_run():
    async def main(loop):
        time.sleep(1)

    with pytest.raises(simulation.SimulationError, match="blocked"):
        simulation.run(main, 1)


def test_run_in_which_nothing_can_happen_any_more_fails():
    async def main(loop):
        await loop.create_future()

    with pytest.raises(simulation.SimulationError, match="nothing can happen"):
        simulation.run(main, 1)


def test_run_that_never_ends_fails():
    async def main(loop):
        while True:
            await asyncio.sleep(0)

    with pytest.raises(simulation.SimulationError, match="does not end"):
        simulation.run(main, 1, max_steps=1000)


def test_exception_that_nobody_handles_fails_the_run():
    async def main(loop):
        loop.call_soon(divmod, 1, 0)
        await asyncio.sleep(1)

    with pytest.raises(simulation.SimulationError, match="ZeroDivisionError"):
        simulation.run(main, 1)


# -- network


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


def talk(seed, act, segment=0):
    """Run `act(loop, reader, writer)` on a connection to an echo server at port 1."""

    async def main(loop):
        loop.network.listen("host", 1, Echo)
        loop.network.conditions("host", 1).segment = segment
        reader, writer = await asyncio.open_connection("host", 1)
        try:
            return await act(loop, reader, writer)
        finally:
            writer.close()

    return simulation.run(main, seed)[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("segment", [0, 1, 7])
def test_bytes_arrive_in_order(seed, segment):
    data = bytes(range(256)) * 20

    async def act(loop, reader, writer):
        writer.write(data)
        await writer.drain()
        return await reader.readexactly(len(data))

    assert talk(seed, act, segment) == data


def test_nobody_listens():
    async def main(loop):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("host", 1)
        loop.network.listen("host", 1, Echo)
        loop.network.conditions("host", 1).refuse = True
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("host", 1)

    simulation.run(main, 1)


def test_connecting_hangs():
    async def main(loop):
        loop.network.listen("host", 1, Echo)
        loop.network.conditions("host", 1).hang = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.open_connection("host", 1)

    simulation.run(main, 1)


def test_reset_is_seen_by_the_reader():
    async def act(loop, reader, writer):
        assert loop.network.reset("host", 1) == 1
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert loop.network.reset("host", 1) == 0

    talk(1, act)


def test_cut_delivers_a_part():
    async def act(loop, reader, writer):
        writer.write(b"x" * 1000)
        await asyncio.sleep(0.0021)  # it has arrived, and the answer is on its way
        loop.network.cut("host", 1)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while True:
                got += len(await reader.read(10_000))
        return got

    assert {talk(seed, act) for seed in SEEDS} - {0, 1000}


@pytest.mark.parametrize("fault", ["silent_in", "silent_out"])
def test_silence_in_one_direction_ends(fault):
    async def act(loop, reader, writer):
        conditions = loop.network.conditions("host", 1)
        setattr(conditions, fault, True)
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await reader.read(1)
        setattr(conditions, fault, False)
        loop.network.changed()
        return await reader.readexactly(5)

    assert talk(1, act) == b"hello"


def test_half_open_connection_says_nothing():
    async def act(loop, reader, writer):
        assert loop.network.drop("host", 1) == 1
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await reader.read(1)

    talk(1, act)


def test_slow_connection():
    async def act(loop, reader, writer):
        loop.network.conditions("host", 1).latency = (5.0, 5.0)
        began = loop.time()
        writer.write(b"x")
        await reader.readexactly(1)
        return loop.time() - began

    assert talk(1, act) == pytest.approx(10, abs=0.1)


# -- runtime


def test_runtime_is_one():
    async def main(loop):
        runtime: AsyncRuntime = simulation.SimulatedRuntime(loop, "one")
        other = simulation.SimulatedRuntime(loop, "other")
        assert runtime.uuid4() != other.uuid4()
        assert runtime.time() == time.time()
        assert await runtime.run_blocking(divmod, 7, 2) == (3, 1)
        worker, done = runtime.worker("w"), []
        worker.submit(done.append, 1)
        assert worker.call(len, done) == 1
        loop.network.listen("host", 1, Echo)
        stream = await runtime.connect("host", 1, tls=None, timeout=5)
        stream.write(b"hello")
        while (answer := stream.read()) is None:
            await stream.wait(10)
        assert answer == b"hello"
        stream.close()

    simulation.run(main, 1)


def test_condition_that_is_held_over_an_await_fails_the_run():
    async def main(loop):
        condition = simulation.SimulatedRuntime(loop, "one").condition()

        async def hold():
            with condition:
                await asyncio.sleep(1)

        task = loop.create_task(hold())
        await asyncio.sleep(0.5)
        with pytest.raises(simulation.SimulationError, match="over an await"), condition:
            pass
        await task
        with condition:
            assert not await condition.wait(0.1)

    simulation.run(main, 1)


# -- files


def files_of(seed=1):
    return simulation.SimulatedFiles(random.Random(seed), lambda: 1.0)


def test_files_of_the_simulation_are_files():
    files: Files = files_of()
    files.make_folder("a/b")
    files.write("a/b/x", b"1")
    with files.lock("a/lock"), pytest.raises(BlockingIOError), files.lock("a/lock"):
        pass
    log = files.open_append("a/b/log")
    log.write(b"12", b"34")
    log.truncate(3)
    assert (files.read("a/b/log"), log.size) == (b"123", 3)
    assert files.list("a/b") == ["log", "x"]
    assert files.list("a") == ["b"]
    with pytest.raises(OSError, match="not empty"):
        files.remove_folder("a/b")
    files.remove("a/b/x")
    files.remove("a/b/log")
    files.remove_folder("a/b")
    assert files.info("a/b") is None
    with pytest.raises(FileNotFoundError):
        files.write("no/folder", b"")
    with pytest.raises(FileNotFoundError):
        files.open_append("a/none", create=False)


def test_crash_keeps_what_was_synced_and_a_prefix_of_the_rest():
    lengths = set()
    for seed in SEEDS:
        files = files_of(seed)
        log = files.open_append("log")
        log.write(b"kept")
        log.sync()
        log.write(b"lost?")
        files.write("state", b"old", sync=True)
        files.write("state", b"new")
        files.write("made", b"made")
        files.crash()
        assert b"keptlost?".startswith(files.read("log"))
        assert files.read("log").startswith(b"kept")
        lengths.add(len(files.read("log")))
        assert files.read("state") in (b"old", b"new")
        assert files.info("made") is None or files.read("made") == b"made"
    assert len(lengths) > 2


def test_full_disk():
    files = files_of()
    log = files.open_append("log")
    files.is_full = True
    with pytest.raises(OSError, match="No space"):
        log.write(b"x")
    with pytest.raises(OSError, match="No space"):
        files.write("state", b"x")
    files.is_full = False
    log.write(b"x")
