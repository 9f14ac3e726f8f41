"""What every runtime promises: tasks, locks, events, conditions, workers, connections."""

import logging
import socket
import ssl
import threading

import pytest

from pairbus.runtime import AsyncioRuntime, AsyncRuntime

runtime: AsyncRuntime = AsyncioRuntime()


async def read_until(stream, count):
    data = b""
    while len(data) < count:
        got = stream.read()
        if got is None:
            await stream.wait(10)
        elif not got:
            break
        else:
            data += got
    return data


# -- time and chance


async def test_clocks_go_forward():
    wall, steady = runtime.time(), runtime.monotonic()
    await runtime.sleep(0.01)
    assert runtime.monotonic() - steady >= 0.01
    assert runtime.time() > wall > 1e9


def test_no_two_ids_are_alike():
    assert len({runtime.uuid4() for _ in range(100)}) == 100
    assert 0 <= runtime.random.random() < 1


# -- tasks


async def test_task_runs_beside_its_maker_and_can_be_joined():
    go, done = runtime.event(), []

    async def work(what):
        await go.wait(10)
        done.append(what)

    task = runtime.spawn(work, "x", name="test")
    assert not await task.join(0.01)
    assert not task.is_done
    go.set()
    assert await task.join(60)
    assert task.is_done
    assert done == ["x"]


async def test_task_that_fails_is_logged_under_its_name(caplog):
    async def work():
        raise ValueError("no")

    with caplog.at_level(logging.ERROR, "pairbus.tasks"):
        task = runtime.spawn(work, name="the keep-alive task")
        assert await task.join(60)
    assert "the keep-alive task failed" in caplog.text


async def test_task_cannot_wait_for_itself():
    answers = []

    async def work():
        answers.append(await tasks[0].join(60))

    tasks = []
    begin = runtime.event()

    async def run():
        await begin.wait(10)
        await work()

    tasks.append(runtime.spawn(run, name="test"))
    begin.set()
    assert await tasks[0].join(60)
    assert answers == [False]


async def test_blocking_function_gives_its_result_and_its_exception():
    assert await runtime.run_blocking(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await runtime.run_blocking(divmod, 7, 0)


# -- locks, events, conditions


async def test_lock_excludes_over_a_wait():
    lock, log = runtime.lock(), []

    async def work(n):
        async with lock:
            log.append(n)
            await runtime.sleep(0.002)
            log.append(n)

    for task in [runtime.spawn(work, n, name="test") for n in range(3)]:
        assert await task.join(60)
    assert log[::2] == log[1::2]


async def test_event_wakes_everybody_and_can_be_cleared():
    event, woken = runtime.event(), []
    assert not await event.wait(0.001)

    async def work():
        woken.append(await event.wait(10))

    tasks = [runtime.spawn(work, name="test") for _ in range(3)]
    await runtime.sleep(0.01)
    event.set()
    for task in tasks:
        assert await task.join(60)
    assert woken == [True] * 3
    assert await event.wait()
    event.clear()
    assert not event.is_set()
    assert not await event.wait(0)


async def test_condition_is_released_while_it_waits():
    condition, state = runtime.condition(), []

    async def work():
        with condition:
            state.append("set")
            condition.notify_all()

    with condition:
        assert not await condition.wait(0.001)
        task = runtime.spawn(work, name="test")
        while not state:
            assert await condition.wait(60)
    assert await task.join(60)


async def test_condition_lets_others_in_where_it_is_released():
    condition, entered = runtime.condition(), runtime.event()

    async def work():
        with condition:
            entered.set()

    with condition:
        task = runtime.spawn(work, name="test")
        with condition.released():
            assert await entered.wait(60)
    assert await task.join(60)


# -- workers


def test_worker_runs_one_after_the_other_and_finishes_before_it_closes():
    worker, log = runtime.worker("test-worker"), []
    gate = threading.Event()
    worker.submit(gate.wait, 10)
    for n in range(5):
        worker.submit(log.append, n)
    assert log == []
    gate.set()
    assert worker.call(len, log) == 5
    worker.submit(log.append, "last")
    worker.close()
    worker.close()
    assert log == [0, 1, 2, 3, 4, "last"]
    with pytest.raises(RuntimeError, match="test-worker is closed"):
        worker.submit(log.append, 0)


def test_worker_outlives_what_fails(caplog):
    worker = runtime.worker("test-worker")
    worker.submit(divmod, 1, 0)
    with pytest.raises(ZeroDivisionError):
        worker.call(divmod, 1, 0)
    assert worker.call(divmod, 7, 2) == (3, 1)
    worker.close()
    assert caplog.text.count("test-worker failed") == 1


# -- connections


async def test_stream_carries_bytes_both_ways(peer):
    echo = peer.echo()
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)
    assert stream.read() is None
    stream.write(b"hello ")
    stream.write(b"world")
    assert await read_until(stream, 11) == b"hello world"
    assert not stream.has_unsent
    stream.close()
    stream.close()
    await runtime.run_blocking(echo.join, 60)  # the loop closes the socket meanwhile
    assert not echo.is_alive()


async def test_stream_keeps_what_the_socket_does_not_take_yet(peer):
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)
    other = await runtime.run_blocking(peer.accept)
    data = bytes(range(256)) * (1 << 16)  # 16 MiB, more than the buffers between the two
    stream.write(data)
    assert stream.has_unsent
    await stream.wait(0.01, read=False)
    assert stream.has_unsent
    got = []
    taker = threading.Thread(target=lambda: got.append(_take(other, len(data))), daemon=True)
    taker.start()
    while stream.has_unsent:
        await stream.wait(10, read=False)
        stream.flush()
    stream.close()
    await runtime.run_blocking(taker.join, 10)
    assert got == [data]
    other.close()


async def test_stream_without_unsent_data_has_nothing_to_wait_for_but_data(peer):
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)
    await stream.wait(1000, read=False)
    stream.close()


def _take(connection, count):
    data = bytearray()
    while len(data) < count and (got := connection.recv(1 << 20)):
        data += got
    return bytes(data)


async def test_stream_reads_everything_of_a_fast_writer(peer):
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)
    other = await runtime.run_blocking(peer.accept)
    data = bytes(range(256)) * (1 << 15)

    def send():
        other.sendall(data)
        other.close()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    await runtime.sleep(0.02)  # let it run ahead of the reader
    assert await read_until(stream, len(data) + 1) == data
    assert stream.read() == b""
    await runtime.run_blocking(sender.join, 10)
    stream.close()


async def test_reset_connection_is_an_oserror(peer):
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)
    other = await runtime.run_blocking(peer.accept)
    other.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER 0: close resets
    other.close()
    await stream.wait(10)
    with pytest.raises(OSError):  # noqa: PT011 - any kind
        assert stream.read() == b"never"
    stream.close()


async def test_closing_wakes_who_waits(peer):
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)

    async def work():
        await stream.wait(30)

    task = runtime.spawn(work, name="test")
    await runtime.sleep(0.02)
    stream.close()
    assert await task.join(60)


async def test_waiting_ends_with_the_time(peer):
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)
    began = runtime.monotonic()
    await stream.wait(0.02)
    assert runtime.monotonic() - began > 0.015
    stream.close()


async def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        port = taken.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            await runtime.connect("127.0.0.1", port, tls=None, timeout=10)


async def test_handshake_that_never_ends_is_a_timeout(peer):
    context = ssl.create_default_context()
    with pytest.raises(TimeoutError):
        await runtime.connect("127.0.0.1", peer.port, tls=context, timeout=0.05)


async def test_tls_stream(peer, tls_file):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tls_file)

    def echo():
        with server.wrap_socket(peer.accept(), server_side=True) as connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    client = ssl.create_default_context(cafile=tls_file.with_name("cert.pem"))
    stream = await runtime.connect("localhost", peer.port, tls=client, timeout=10)
    data = b"x" * 100_000
    stream.write(data)
    assert await read_until(stream, len(data)) == data
    stream.close()
    await runtime.run_blocking(thread.join, 10)
