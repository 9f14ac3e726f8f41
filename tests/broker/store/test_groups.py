"""On an event loop: what one turn staged is one group, and is acknowledged when it is durable."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading

import pytest

from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.messages import IncomingMessage, Outcome
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store.store import DATABASE, Store
from pairbus.runtime import ThreadRuntime
from tests.broker.entities.kit import Host


@pytest.fixture(params=["normal", "full"])
def store(tmp_path, request):
    store = Store(tmp_path, request.param)
    yield store
    store.close()


@pytest.fixture
async def ns(store):
    namespace = Namespace("test", store)
    namespace.admin.create(QueueDescription("q"))
    namespace.start(asyncio.get_running_loop())
    yield namespace
    namespace.close()


async def committed(namespace: Namespace) -> None:
    done = asyncio.get_running_loop().create_future()
    namespace.committer.after_commit(
        lambda e: done.set_exception(e) if e else done.set_result(None)
    )
    await done


def messages(count: int, size: int = 1) -> list[IncomingMessage]:
    return [IncomingMessage(b"x" * size) for _ in range(count)]


def kept(folder) -> int:
    """How many messages a process would find that started now."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as tables:
        return int(tables.execute("SELECT count(*) FROM message").fetchone()[0])


async def test_an_acknowledgement_comes_after_the_commit_and_in_order(ns, tmp_path):
    seen: list[tuple[int, int]] = []

    def acknowledged(n: int) -> None:
        seen.append((n, kept(tmp_path)))

    total = 0
    for n in range(30):
        batch = messages(1 if n % 3 else 20)
        total += len(batch)
        ns.send("q", batch)
        ns.committer.after_commit(lambda error, n=n: acknowledged(n))
        if n % 4 == 0:
            await asyncio.sleep(0)
    await committed(ns)
    assert [n for n, _ in seen] == list(range(30))
    so_far = 0
    for n, count in seen:
        so_far += 1 if n % 3 else 20
        assert count >= so_far
    assert seen[-1][1] == total


async def test_what_one_turn_stages_is_one_transaction(ns, store):
    groups = []
    real = store._write_group  # noqa: SLF001 - a disk that fails or is slow
    store._write_group = lambda group: (groups.append(len(group.inserts)), real(group))  # noqa: SLF001 - a disk that fails or is slow
    for _ in range(10):
        ns.send("q", messages(50))
    await committed(ns)
    assert groups == [500]


async def test_a_message_is_visible_only_when_it_is_durable(ns):
    host = Host()
    receiver = ns.receivers.open("q", host)
    receiver.grant(100)
    ns.send("q", messages(50))
    assert host.deliveries == []
    await committed(ns)
    assert len(host.deliveries) == 50
    receiver.settle_many(host.tokens, Outcome.COMPLETE)
    await committed(ns)
    assert ns.admin.runtime("q").total_message_count == 0


async def test_receive_and_delete_delivers_after_the_removal_is_durable(ns, tmp_path):
    ns.send("q", messages(20))
    await committed(ns)
    left: list[int] = []

    class Counting(Host):
        def deliver(self, deliveries):
            super().deliver(deliveries)
            left.append(kept(tmp_path))

        def drained(self):
            left.append(-1)

    host = Counting()
    ns.receivers.open("q", host, receive_and_delete=True).grant(30, drain=True)
    assert host.deliveries == []
    await committed(ns)
    assert len(host.deliveries) == 20
    assert left == [0, -1]


async def test_a_group_that_fails_is_told_to_all_who_wait_and_the_next_one_works(ns, store):
    real = store._write_group  # noqa: SLF001 - a disk that fails or is slow
    tried = []

    def broken(group):
        tried.append(group)
        raise sqlite3.OperationalError("database or disk is full")

    store._write_group = broken  # noqa: SLF001 - a disk that fails or is slow
    ns.send("q", messages(40))
    with pytest.raises(StoreError):
        await committed(ns)
    ns.send("q", messages(1))
    with pytest.raises(StoreError):
        await committed(ns)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(tried) == 2  # nothing is tried again by itself
    store._write_group = real  # noqa: SLF001 - a disk that fails or is slow
    ns.send("q", messages(3))
    await committed(ns)
    assert ns.admin.runtime("q").active_message_count == 3
    assert ns.admin.runtime("q").size_in_bytes == 3


async def test_what_comes_after_the_end_is_refused_and_nobody_hangs(tmp_path):
    store = Store(tmp_path, "full")
    namespace = Namespace("test", store)
    namespace.admin.create(QueueDescription("q"))
    namespace.start(asyncio.get_running_loop())
    answers: list[Exception | None] = []
    host = Host()
    namespace.receivers.open("q", host, receive_and_delete=True).grant(5)
    namespace.send("q", messages(100))
    namespace.committer.after_commit(answers.append)
    await asyncio.sleep(0)  # the group is the writer's now
    namespace.close()
    store.close()
    while not answers:
        await asyncio.sleep(0)
    assert answers == [None]
    namespace.send("q", messages(1))
    namespace.committer.after_commit(answers.append)
    store = Store(tmp_path)
    left = Namespace("test", store).admin.runtime("q").active_message_count
    store.close()
    assert (len(host.deliveries), left) == (5, 95)


async def test_while_the_writer_is_busy_the_next_group_grows(ns, store):
    gate = threading.Event()
    groups = []
    real = store._write_group  # noqa: SLF001 - a disk that fails or is slow

    def slow(group):
        groups.append(len(group.inserts))
        if len(groups) == 1:
            gate.wait(10)
        real(group)

    store._write_group = slow  # noqa: SLF001 - a disk that fails or is slow
    ns.send("q", messages(100))
    await asyncio.sleep(0)
    for _ in range(10):
        ns.send("q", messages(20))
        await asyncio.sleep(0)
    gate.set()
    await committed(ns)
    assert groups == [100, 200]


async def test_within_a_turn_nothing_is_committed_and_its_end_commits_a_few_rows_at_once(ns, store):
    acknowledged: list[Exception | None] = []
    ns.committer.begin_turn()
    ns.send("q", messages(2))
    ns.committer.after_commit(acknowledged.append)
    await asyncio.sleep(0)
    assert acknowledged == []
    ns.committer.end_turn()
    ns.committer.end_turn()
    if store.durability == "normal":
        assert acknowledged == [None]  # a commit that waits for the disk is left to the writer
    await committed(ns)
    assert acknowledged == [None]
    ns.committer.begin_turn()
    ns.send("q", messages(100))
    ns.committer.after_commit(acknowledged.append)
    ns.committer.end_turn()
    assert len(acknowledged) == 1  # many rows are the writer's
    await committed(ns)
    assert acknowledged == [None, None]


async def test_an_answer_that_fails_does_not_cost_the_others_theirs(ns, caplog):
    acknowledged: list[Exception | None] = []
    ns.send("q", messages(1))
    ns.committer.after_commit(lambda error: 1 / 0)
    ns.committer.after_commit(acknowledged.append)
    await committed(ns)
    assert acknowledged == [None]
    assert "an acknowledgement failed" in caplog.text

    class Broken(Host):
        def deliver(self, deliveries):
            raise RuntimeError("broken link")

    ns.receivers.open("q", Broken(), receive_and_delete=True).grant(1)
    ns.send("q", messages(1))
    await committed(ns)


def test_in_memory_a_turn_ends_with_its_answers():
    namespace = Namespace("test")
    namespace.admin.create(QueueDescription("q"))
    acknowledged: list[Exception | None] = []
    namespace.committer.begin_turn()
    namespace.send("q", messages(2))
    namespace.committer.after_commit(acknowledged.append)
    assert acknowledged == []
    namespace.committer.end_turn()
    assert acknowledged == [None]
    namespace.committer.after_commit(acknowledged.append)
    assert acknowledged == [None, None]


async def test_a_lock_ends_by_itself_on_the_loop(ns):
    from dataclasses import replace
    from datetime import timedelta

    ns.admin.update(
        replace(ns.catalog.queue_entity("q").description, lock_duration=timedelta(milliseconds=50))
    )
    arrived = asyncio.Event()

    class Second(Host):
        def deliver(self, deliveries):
            super().deliver(deliveries)
            arrived.set()

    ns.send("q", messages(1))
    await committed(ns)
    first, second = Host(), Second()
    ns.receivers.open("q", first).grant(1)
    ns.receivers.open("q", second).grant(1)
    assert len(first.deliveries) == 1
    await asyncio.wait_for(arrived.wait(), 10)
    assert second.deliveries[0].message.delivery_count == 1


async def test_a_long_write_ahead_log_is_moved_into_the_database(ns, tmp_path, monkeypatch):
    monkeypatch.setattr("pairbus.broker.store.store.CHECKPOINT", 50)
    for _ in range(40):
        ns.send("q", messages(10, 4000))
        await committed(ns)
    ns.committer.flush()
    size = (tmp_path / f"{DATABASE}-wal").stat().st_size
    assert size < 1_600_000 * 0.9


class InlineWorker:
    """Runs each function within the call."""

    def __init__(self, name: str) -> None: ...

    def submit(self, function, *args):
        function(*args)

    call = submit

    def close(self): ...


class SingleThreaded(ThreadRuntime):
    worker = staticmethod(InlineWorker)  # type: ignore[assignment]


async def test_a_store_without_threads_commits_within_the_call(tmp_path):
    store = Store(tmp_path, "full", SingleThreaded())
    namespace = Namespace("test", store)
    namespace.admin.create(QueueDescription("q"))
    namespace.start(asyncio.get_running_loop())
    threads = threading.active_count()
    acknowledged: list[Exception | None] = []
    namespace.committer.begin_turn()
    namespace.send("q", messages(500))
    namespace.committer.after_commit(acknowledged.append)
    namespace.committer.end_turn()
    await committed(namespace)
    assert acknowledged == [None]
    assert threading.active_count() == threads
    assert kept(tmp_path) == 500
    namespace.close()
    store.close()
