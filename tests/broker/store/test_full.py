"""A disk that is full: refused is refused, in memory too, and with room again all goes on."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from datetime import timedelta

import pytest

from pairbus.broker.entities.errors import EntityNotFoundError, StoreError
from pairbus.broker.entities.messages import IncomingMessage, Outcome
from pairbus.broker.entities.model import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    TopicDescription,
)
from pairbus.broker.entities.model import SubscriptionDescription as Subscription
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store.store import DATABASE, Store
from tests.broker.entities.kit import Clock, Host


class Disk:
    """A namespace whose store has as much room as we say."""

    def __init__(self, path, clock=None) -> None:
        self.path = path
        self.store = Store(path, "full")  # every group is a transaction
        self.ns = Namespace("test", self.store, clock or Clock())
        self.ns.admin.create(QueueDescription("q"))
        self.ns.admin.create(TopicDescription("t"))
        self.ns.admin.create(Subscription("t", "s"))
        self.send(b"one", b"two")

    def send(self, *bodies: bytes) -> None:
        self.ns.send("q", [IncomingMessage(body) for body in bodies])

    @contextlib.contextmanager
    def full(self):
        (pages,) = self.store._write.execute("PRAGMA page_count").fetchone()  # noqa: SLF001 - only SQLite can limit its file
        self.store._write.execute(f"PRAGMA max_page_count = {pages}")  # noqa: SLF001 - only SQLite can limit its file
        filler = IncomingMessage(b"x" * 200_000)
        with pytest.raises(StoreError):
            self.answer(lambda: self.ns.send("q", [filler]))
        try:
            yield
        finally:
            self.store._write.execute("PRAGMA max_page_count = 1000000")  # noqa: SLF001 - only SQLite can limit its file

    def answer(self, action) -> None:
        """Do something and wait for its answer; raises it if it is a refusal."""
        answers: list[Exception | None] = []
        self.ns.committer.begin_turn()
        action()
        self.ns.committer.after_commit(answers.append)
        self.ns.committer.end_turn()
        self.ns.committer.flush()
        if answers[0] is not None:
            raise answers[0]

    def bodies(self, path="q") -> list[bytes | None]:
        return [d.message.bare for d in self.ns.peek(path, 0, 100)]

    def stored(self) -> list[bytes]:
        with contextlib.closing(sqlite3.connect(self.path / DATABASE)) as tables:
            return [bare for (bare,) in tables.execute("SELECT bare FROM message ORDER BY id")]


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path)
    yield disk
    disk.store.close()


@pytest.fixture
def broken(disk, monkeypatch):
    """The next transaction fails when it is committed, as on a full disk."""

    def refuse(group):
        raise sqlite3.OperationalError("database or disk is full")

    @contextlib.contextmanager
    def breaking():
        with monkeypatch.context() as patch:
            patch.setattr(disk.store, "_write_group", refuse)
            yield

    return breaking


def test_a_send_that_does_not_fit_is_refused_and_leaves_nothing(disk):
    with disk.full():
        assert disk.bodies() == disk.stored() == [b"one", b"two"]
        assert disk.ns.admin.runtime("q").size_in_bytes == 6
    disk.answer(lambda: disk.send(b"x" * 200_000))
    assert len(disk.bodies()) == len(disk.stored()) == 3


def test_an_entity_that_cannot_be_stored_is_not_there(disk):
    big = QueueDescription("big", user_metadata="x" * 1000)
    with disk.full():
        for n in range(40):  # until the pages at hand are used up
            with contextlib.suppress(StoreError):
                disk.answer(lambda n=n: disk.ns.admin.create(QueueDescription(f"n{n}" * 60)))
        with pytest.raises(StoreError):
            disk.answer(lambda: disk.ns.admin.create(big))
        assert disk.ns.catalog.find("big") is None
        names = {queue.name for queue in disk.ns.admin.list_queues()}
    assert len(names) < 41
    disk.store.close()
    again = Namespace("again", Store(disk.path), Clock())
    assert {queue.name for queue in again.admin.list_queues()} == names
    again._store.close()  # noqa: SLF001 - the file must be closed twice


def test_changes_of_entities_that_were_refused_did_not_happen(disk, broken):
    ns = disk.ns
    longer = timedelta(minutes=3)
    new_rule = RuleDescription("big", SqlFilter("size > 3"))
    for change in (
        lambda: ns.admin.update(QueueDescription("q", lock_duration=longer)),
        lambda: ns.admin.update(TopicDescription("t", user_metadata="changed")),
        lambda: ns.admin.create(Subscription("t", "new")),
        lambda: ns.admin.create_rule("t", "s", new_rule),
        lambda: ns.admin.delete_rule("t", "s", "$Default"),
        lambda: ns.admin.delete(ns.catalog.subscription_entity("t", "s")),
        lambda: ns.admin.delete_queue("q"),
        lambda: ns.admin.delete(ns.catalog.topic_entity("t")),
    ):
        with broken(), pytest.raises(StoreError):
            disk.answer(change)
        assert ns.catalog.queue_entity("q").description.lock_duration != longer
        assert ns.catalog.topic_entity("t").description.user_metadata != "changed"
        assert [s.name for s in ns.admin.list_subscriptions("t")] == ["s"]
        assert [rule.name for rule in ns.admin.list_rules("t", "s")] == ["$Default"]
        assert disk.bodies() == [b"one", b"two"]
    disk.answer(lambda: ns.admin.delete_queue("q"))
    with pytest.raises(EntityNotFoundError):
        ns.peek("q", 0, 1)


@pytest.mark.parametrize("outcome", list(Outcome)[:1] + list(Outcome)[3:])
def test_a_settlement_that_was_refused_gives_the_message_back(disk, broken, outcome):
    host = Host()
    receiver = disk.ns.receivers.open("q", host)
    receiver.grant(1)
    with broken(), pytest.raises(StoreError):
        disk.answer(lambda: receiver.settle(host.tokens[0], outcome))
    assert isinstance(host.error, StoreError)  # it must receive anew
    assert disk.bodies() == [b"one", b"two"]
    assert disk.bodies("q/$DeadLetterQueue") == []
    again = Host()
    disk.ns.receivers.open("q", again, receive_and_delete=True).grant(5)
    assert again.bodies == [b"one", b"two"]
    assert disk.stored() == []


def test_who_waits_for_something_later_is_told_as_well(disk, broken):
    answers: list[Exception | None] = []
    host = Host()
    receiver = disk.ns.receivers.open("q", host)
    receiver.grant(1)
    with broken():
        disk.ns.committer.begin_turn()
        receiver.settle(host.tokens[0], Outcome.COMPLETE)
        disk.ns.committer.after_commit(lambda error: disk.ns.committer.after_commit(answers.append))
        disk.ns.committer.end_turn()
        disk.ns.committer.flush()
    assert len(answers) == 1


async def test_what_is_due_and_cannot_be_stored_is_tried_again_in_a_while(tmp_path, monkeypatch):
    clock = Clock()
    disk = Disk(tmp_path, clock)
    disk.ns.send("q", [IncomingMessage(b"soon gone", ttl=100)])
    disk.ns.start(asyncio.get_running_loop())
    real, tried = disk.store._write_group, []  # noqa: SLF001 - a disk that fails

    def refuse(group):
        tried.append(group)
        raise sqlite3.OperationalError("database or disk is full")

    disk.store._write_group = refuse  # noqa: SLF001 - a disk that fails
    clock.now += 200
    disk.ns.tick()
    while not tried:
        await asyncio.sleep(0.001)
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(tried) == 1
    disk.store._write_group = real  # noqa: SLF001 - a disk that fails
    clock.now += 2000
    disk.ns.tick()
    while len(disk.stored()) > 2:
        await asyncio.sleep(0.001)
    assert disk.bodies() == [b"one", b"two"]
    disk.ns.close()
    disk.store.close()


@contextlib.asynccontextmanager
async def failing_after(disk, action):
    """A transaction that fails after the block, within which others can stage changes."""
    loop, real = asyncio.get_running_loop(), disk.store._write_group  # noqa: SLF001 - a disk that fails
    begun, failing = asyncio.Event(), threading.Event()

    def refuse(group):
        loop.call_soon_threadsafe(begun.set)
        failing.wait(60)
        disk.store._write_group = real  # noqa: SLF001 - a disk that fails
        raise sqlite3.OperationalError("database or disk is full")

    disk.store._write_group = refuse  # noqa: SLF001 - a disk that fails
    disk.ns.start(loop)
    try:
        action()
        await begun.wait()
        yield
    finally:
        failing.set()


async def answer_of(ns) -> Exception | None:
    answer = asyncio.get_running_loop().create_future()
    ns.committer.after_commit(answer.set_result)
    return await answer


async def test_duplicate_of_a_message_that_could_not_be_stored_is_refused_too(disk):
    disk.ns.admin.create(QueueDescription("d", requires_duplicate_detection=True))

    def send():
        disk.ns.send("d", [IncomingMessage(b"x", message_id="a")])

    async with failing_after(disk, send):
        send()
        answer = asyncio.ensure_future(answer_of(disk.ns))
        await asyncio.sleep(0)
    assert isinstance(await answer, StoreError)
    assert disk.bodies("d") == []


async def test_numbers_that_were_reserved_later_are_kept_after_a_failure(disk):
    async with failing_after(disk, lambda: disk.send(*[b"x"] * 1200)):
        disk.send(*[b"y"] * 1200)
        answer = asyncio.ensure_future(answer_of(disk.ns))
        await asyncio.sleep(0)
    assert await answer is None
    queue = disk.ns.catalog.queue_at("q").store
    assert disk.store.last_numbers()[queue.queue_id] >= queue.last_number
