"""What was kept is there at the next start, and what was settled is not."""

from __future__ import annotations

import sqlite3

import pytest

from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.messages import IncomingMessage, Outcome
from pairbus.broker.entities.model import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.broker.store.rows import runs
from pairbus.broker.store.store import DATABASE, Store, StoreInUseError
from tests.broker.entities.kit import Bench


@pytest.fixture
def restart(tmp_path):
    """Calling it closes the store and starts a new namespace on the same files."""
    stores = []
    benches = []

    def start(clock=None, *, tidy=True, **queue) -> Bench:
        if stores:
            bench = benches.pop()
            if tidy:
                bench.ns.close()
            stores.pop().close()
        stores.append(Store(tmp_path))
        benches.append(Bench(stores[0], clock=clock, **queue))
        return benches[0]

    yield start
    for store in stores:
        store.close()


def test_messages_come_back_in_order_with_their_bytes_and_fields(restart):
    bench = restart()
    bench.send(b"one", b"two", annotations=b"\xc1\x01\x00", ttl=3_600_000, priority=7, durable=True)
    bench = restart(bench.clock)
    one, two = bench.receive(5)
    assert (one.message.bare, two.message.bare) == (b"one", b"two")
    assert one.message.annotations == b"\xc1\x01\x00"
    assert one.message.ttl == 3_600_000
    assert (one.message.priority, one.message.durable) == (7, True)
    assert (one.message.sequence_number, two.message.sequence_number) == (1, 2)


def test_a_completed_message_never_comes_back(restart):
    bench = restart()
    bench.send(b"one", b"two", b"three")
    receiver, host = bench.receiver(credit=3)
    receiver.settle(host.tokens[1], Outcome.COMPLETE)
    bench = restart(bench.clock)
    assert [d.message.bare for d in bench.receive(5)] == [b"one", b"three"]


def test_what_was_received_and_deleted_never_comes_back(restart):
    bench = restart()
    bench.send(b"one", b"two")
    assert len(bench.receive(1, receive_and_delete=True)) == 1
    bench = restart(bench.clock)
    assert [d.message.bare for d in bench.receive(5)] == [b"two"]


def test_sequence_numbers_are_never_used_again(restart):
    bench = restart()
    bench.send(b"one", b"two")
    bench.receive(2, receive_and_delete=True)
    bench = restart(bench.clock)
    bench.send(b"three")
    assert bench.receive(1, receive_and_delete=True)[0].message.sequence_number == 3
    bench = restart(bench.clock, tidy=False)
    bench.send(b"four")
    assert bench.receive(1)[0].message.sequence_number > 3


def test_an_entity_number_is_never_used_again(restart):
    bench = restart()
    bench.ns.admin.create(QueueDescription("other"))
    before = bench.ns.catalog.entity("other").entity_id
    bench.ns.admin.delete_queue("other")
    bench = restart(bench.clock)
    bench.ns.admin.create(QueueDescription("other"))
    assert bench.ns.catalog.entity("other").entity_id > before


def test_a_lock_is_gone_and_the_delivery_count_of_what_was_abandoned_stays(restart):
    bench = restart()
    bench.send(b"one")
    receiver, host = bench.receiver(credit=1)
    receiver.settle(host.tokens[0], Outcome.ABANDON)
    receiver.grant(1)
    bench = restart(bench.clock)
    (one,) = bench.receive(1)
    assert one.message.delivery_count == 1


def test_deferred_scheduled_and_dead_messages_stay_what_they_were(restart):
    bench = restart()
    bench.send(b"deferred", b"dead")
    receiver, host = bench.receiver(credit=2)
    receiver.settle(host.tokens[0], Outcome.DEFER)
    receiver.settle(host.tokens[1], Outcome.DEAD_LETTER)
    (number,) = bench.ns.schedule(
        "q", [IncomingMessage(b"later", scheduled=bench.clock.now + 60_000)]
    )
    bench = restart(bench.clock)
    runtime = bench.ns.admin.runtime("q")
    assert runtime.active_message_count == 1
    assert runtime.scheduled_message_count == 1
    assert runtime.dead_letter_message_count == 1
    assert bench.receive(5) == []
    assert bench.ns.receivers.take_deferred("q", [1])[0].message.bare == b"deferred"
    assert bench.receive(5, path="q/$deadletterqueue")[0].message.bare == b"dead"
    assert [d.message.sequence_number for d in bench.ns.peek("q/$DeadLetterQueue", 0, 9)] == [2]
    assert bench.ns.peek("q", number, 1)[0].message.bare == b"later"
    bench.pass_time(60_000)
    assert bench.receive(5)[0].message.bare == b"later"


def test_changed_properties_are_kept(restart):
    bare = b"\x00\x53\x75\xa0\x01x"
    bench = restart()
    bench.send(bare)
    receiver, host = bench.receiver(credit=1)
    receiver.settle(host.tokens[0], Outcome.ABANDON, properties={"tried": "once"})
    bench = restart(bench.clock)
    changed = bench.receive(1)[0].message.bare
    assert changed != bare
    assert b"tried" in changed


def test_session_state_is_kept_until_it_is_cleared(restart):
    bench = restart(requires_session=True)
    bench.receiver(session_id="s")
    bench.ns.receivers.set_session_state("q", "s", b"half way")
    bench = restart(bench.clock)
    bench.receiver(session_id="s")
    assert bench.ns.receivers.session_state("q", "s") == b"half way"
    bench.ns.receivers.set_session_state("q", "s", None)
    bench = restart(bench.clock)
    bench.receiver(session_id="s")
    assert bench.ns.receivers.session_state("q", "s") is None


def test_a_duplicate_is_known_after_a_restart_and_forgotten_after_the_window(restart):
    bench = restart(requires_duplicate_detection=True)
    bench.send(b"one", message_id="a")
    bench = restart(bench.clock)
    bench.send(b"again", message_id="a")
    assert bench.ns.admin.runtime("q").active_message_count == 1
    bench.pass_time(700_000)
    bench = restart(bench.clock)
    bench.send(b"again", message_id="a")
    assert bench.ns.admin.runtime("q").active_message_count == 2


def test_topics_subscriptions_and_rules_come_back(restart):
    bench = restart()
    bench.ns.admin.create(TopicDescription("t"))
    bench.ns.admin.create(SubscriptionDescription("t", "all"))
    bench.ns.admin.create(
        SubscriptionDescription("t", "none", max_delivery_count=3),
        RuleDescription("never", SqlFilter("1=0")),
    )
    bench.send(b"one", path="t")
    bench = restart(bench.clock)
    assert bench.ns.catalog.subscription_entity("T", "None").description.max_delivery_count == 3
    assert [rule.name for rule in bench.ns.admin.list_rules("t", "none")] == ["never"]
    bench.send(b"two", path="t")
    got = bench.receive(5, path="t/subscriptions/all")
    assert [d.message.enqueued_sequence_number for d in got] == [1, 2]
    assert bench.receive(5, path="t/subscriptions/none") == []


def test_a_deleted_queue_and_its_messages_are_gone(restart, tmp_path):
    bench = restart()
    bench.send(b"one")
    bench.ns.admin.delete_queue("q")
    bench = restart(bench.clock)
    assert bench.ns.admin.runtime("q").total_message_count == 0  # made anew by the kit
    rows = sqlite3.connect(tmp_path / DATABASE).execute("SELECT count(*) FROM message")
    assert rows.fetchone() == (0,)


def test_a_second_broker_on_the_same_directory_is_told_so(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(StoreInUseError, match="in use by another broker"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_store_of_a_newer_version_is_left_alone(tmp_path, monkeypatch):
    Store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    opened = []
    connect = Store._connect  # noqa: SLF001 - to see that it is closed
    monkeypatch.setattr(Store, "_connect", lambda store: opened.append(connect(store)) or opened[0])
    with pytest.raises(StoreError, match="newer pairbus"):
        Store(tmp_path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path):
    (tmp_path / DATABASE).write_bytes(b"not a database, surely" * 100)
    with pytest.raises(StoreError, match="Cannot open the store"):
        Store(tmp_path)


def test_a_group_that_cannot_be_stored_is_refused_and_leaves_nothing(restart, tmp_path):
    bench = restart()
    bench.send(b"one")
    bench.ns.context.journal.inserts.append((1, object(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    errors: list[Exception | None] = []
    bench.ns.context.journal.callbacks.append(errors.append)
    bench.send(b"two")
    assert isinstance(errors[0], StoreError)
    assert [d.message.bare for d in bench.receive(5)] == [b"one"]
    assert bench.ns.admin.runtime("q").size_in_bytes == 3
    bench.send(b"three")
    assert [d.message.bare for d in bench.receive(5)] == [b"three"]


def test_what_could_not_be_stored_is_no_duplicate_of_what_comes_next(restart):
    bench = restart(requires_duplicate_detection=True)
    bench.ns.context.journal.inserts.append((1, object(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    bench.send(b"lost", message_id="a")
    assert bench.ns.admin.runtime("q").total_message_count == 0
    bench.send(b"again", message_id="a")
    bench = restart(bench.clock)
    assert [d.message.bare for d in bench.receive(5)] == [b"again"]


def test_runs_joins_what_follows_on():
    assert runs([5, 3, 4, 9, 1]) == [(1, 1), (3, 5), (9, 9)]
    assert runs([]) == []


def test_bodies_beyond_the_budget_are_read_from_the_store(restart):
    bench = restart()
    bench.ns.context.budget.limit = 10_000
    bodies = [b"%04d" % n * 250 for n in range(100)]
    bench.send(*bodies)
    held = sum(m.bare is not None for m in bench.ns.catalog.queue_at("q").store.messages.values())
    assert held <= 11
    assert [d.message.bare for d in bench.ns.peek("q", 50, 2)] == bodies[49:51]
    receiver, host = bench.receiver()
    while len(host.rendered) < 100:
        receiver.grant(7)
        assert receiver.settle_many([d.lock_token for d in host.take()], Outcome.COMPLETE) == []
    assert host.rendered == bodies
    assert bench.ns.context.budget.used == 0


def test_peeked_messages_do_not_fill_memory_either(restart):
    bench = restart()
    bench.ns.context.budget.limit = 1000
    bench.send(*[b"x" * 500] * 10)
    assert [d.message.bare for d in bench.ns.peek("q", 0, 10)] == [b"x" * 500] * 10
    stored = bench.ns.catalog.queue_at("q").store.messages.values()
    assert sum(message.bare is not None for message in stored) == 2
    assert bench.ns.context.budget.used == 1000


def test_a_store_that_cannot_be_read_ends_the_broker(restart, monkeypatch):
    bench = restart()
    bench.ns.context.budget.limit = 0
    bench.send(b"one")
    problems: list[Exception] = []
    bench.ns.on_fatal = problems.append

    def fail(*_):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(bench.ns._store, "read", fail)  # noqa: SLF001 - a disk that fails
    with pytest.raises(sqlite3.OperationalError):
        bench.receive(1)
    assert len(problems) == 1


def test_locked_messages_do_not_fill_memory_either(restart):
    bench = restart()
    bench.ns.context.budget.limit = 10_000
    bodies = [b"%04d" % n * 250 for n in range(100)]
    bench.send(*bodies)
    receiver, host = bench.receiver()
    for _ in range(10):
        receiver.grant(10)
        seen = [d.message for d in host.deliveries if d.message.bare is not None]
        assert len(seen) <= 30
    assert len(host.deliveries) == 100
    first, second = host.tokens[:2]
    receiver.settle(first, Outcome.ABANDON)
    receiver.settle(second, Outcome.DEAD_LETTER, reason="none")
    assert bench.receive(5)[0].message.sequence_number == 1
    (dead,) = bench.ns.peek("q/$DeadLetterQueue", 0, 1)
    assert dead.message.bare == bodies[1]  # no message at all, so nothing to add a reason to


def test_changes_that_a_crash_drops_are_reported_to_who_waits_for_them(restart):
    bench = restart()
    answers: list[Exception | None] = []
    bench.ns.committer.begin_turn()
    bench.send(b"one")
    bench.ns.committer.after_commit(answers.append)
    bench.ns.close(abrupt=True)
    assert isinstance(answers[0], StoreError)
    assert restart(tidy=False).receive(1) == []
