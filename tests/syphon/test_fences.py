"""Fences in the deliverer: answered in order, held with their destination, never forwarded."""

import time
from types import SimpleNamespace

import pytest

from pairbus.broker.entities.model import AccessRight, AuthorizationRule
from pairbus.client import BulkConnection
from pairbus.syphon._sync.answers import FenceAnswers
from pairbus.syphon._sync.connections import NamespaceConnections
from pairbus.syphon.records import BlockedRecord
from pairbus.syphon.target import CredentialFailedError
from tests.envelope.test_fence import fence_bytes
from tests.syphon.conftest import PREFIX, backlog_message
from tests.syphon.drains import RunningDrain
from tests.syphon.test_deliverer import QUEUE, Task

pytestmark = pytest.mark.slow
REPLIES = f"{PREFIX}/replies"


@pytest.fixture(scope="module", autouse=True)
def destinations(pair):
    pair.primary.create_queue("orders")
    pair.secondary.create_queue(REPLIES, requires_session=True)


class FenceTask(Task):
    """A task that answers fences."""

    answers_with = None  # whose connection string; the secondary's by default

    def deliverer(self, **changes):
        link = self.connections(self.answers_with or self.pair.secondary, "answers")
        answering = FenceAnswers(self.runtime, link, "syphon-7")
        return super().deliverer(answering=answering, **changes)


@pytest.fixture
def task(pair, tmp_path):
    made = FenceTask(pair, tmp_path)
    yield made
    for batch in made.read():
        made.backlog.settle(QUEUE, batch.column("lockToken").to_pylist(), "completed")


def answers(pair, count):
    with BulkConnection(pair.secondary.connection_string) as connection:
        receiver = connection.receiver(REPLIES, session_id="client-1")
        got = receiver.receive(count, max_wait=30.0) if count else receiver.receive_now(10)
        receiver.complete(got)
        receiver.close()
    return [one.message.properties for one in got]


def test_a_fence_is_answered_when_what_came_before_it_is_settled_and_not_forwarded(pair, task):
    pair.fill([backlog_message("orders", n) for n in range(3)])
    pair.fill([fence_bytes()])
    pair.fill([backlog_message("orders", 3)])

    task.run()

    [answer] = answers(pair, 1)
    assert (answer.correlation_id, answer.to, answer.subject) == ("f1", "orders", "syphon-7")
    assert pair.numbers("orders", 4) == [0, 1, 2, 3]
    assert task.remaining() == 0
    assert (task.total("forwarded"), sum(table.num_rows for table in task.receipts)) == (4, 4)


def test_a_fence_waits_where_messages_for_its_destination_wait(pair, task):
    pair.fill([fence_bytes()])

    task.run(blocked=BlockedRecord({"orders": None}))

    [held] = task.held()
    assert held.destination == "orders"
    assert answers(pair, 0) == []
    task.backlog.abandon(QUEUE, [bytes.fromhex(held.token)])


def test_a_fence_that_is_the_oldest_held_message_frees_the_others(pair, task):
    pair.fill([fence_bytes()])
    [number] = next(iter(task.read())).column("sequenceNumber").to_pylist()

    task.run(read=task.read(epoch=1), blocked=BlockedRecord({"orders": (QUEUE, number)}))

    assert len(answers(pair, 1)) == 1
    assert any("orders" in report.delivered for report in task.reports)


def test_a_fence_does_not_pass_a_message_that_waits_in_its_queue(pair, task):
    pair.fill([backlog_message("Orders", 1)])
    pair.fill([fence_bytes()])
    [batch] = list(task.read())
    _, number = batch.column("sequenceNumber").to_pylist()

    task.run(read=task.read(epoch=1), blocked=BlockedRecord({"orders": (QUEUE, number)}))

    assert len(task.held()) == 2
    assert answers(pair, 0) == []
    tokens = [bytes.fromhex(held.token) for held in reversed(task.held())]
    task.backlog.abandon(QUEUE, tokens)


def test_a_fence_that_cannot_be_answered_is_dead_lettered_with_the_reason(pair, task, monkeypatch):
    monkeypatch.setattr("pairbus.syphon._sync.answers.reply_queue_of", lambda queue: "nowhere")
    pair.fill([fence_bytes()])

    task.run()

    assert {"FenceNotAnswered": 1} in [report.dead_lettered for report in task.reports]
    assert task.remaining() == 0


def test_a_fence_that_the_syphon_may_not_answer_is_dead_lettered_with_the_right(pair, task):
    rule = AuthorizationRule("listener", (AccessRight.LISTEN,), "listener-key", "other-key")
    pair.secondary.create_queue("reads-only", authorization_rules=(rule,))
    text = pair.secondary.connection_string.replace("RootManageSharedAccessKey", "listener")
    text = text.replace("SAS_KEY_VALUE", "listener-key")
    task.answers_with = SimpleNamespace(connection_string=text)
    pair.fill([fence_bytes()])

    task.run()

    assert {"FenceNotAnswered": 1} in [report.dead_lettered for report in task.reports]
    assert task.remaining() == 0


def test_a_fence_stays_in_the_backlog_while_the_credential_fails(pair, task, monkeypatch):
    def fail(_links, entity):
        raise CredentialFailedError(RuntimeError(entity))

    pair.fill([fence_bytes()])
    with monkeypatch.context() as patch:
        patch.setattr(NamespaceConnections, "sender", fail)
        task.run()
    assert task.remaining() == 1
    assert not any(report.dead_lettered for report in task.reports)

    task.run()

    assert len(answers(pair, 1)) == 1


def test_a_message_without_a_destination_is_dead_lettered_as_before(pair, task):
    pair.fill([backlog_message(None, 1)])

    task.run()

    assert {"NoDestination": 1} in [report.dead_lettered for report in task.reports]


def test_a_fence_is_deferred_with_the_messages_before_it_and_answered_behind_them(pair, tmp_path):
    pair.fill([backlog_message("rebuilt", 0)])
    pair.fill([fence_bytes(to="rebuilt")])
    pair.fill([backlog_message("rebuilt", 1)])
    management = pair.connect(pair.secondary).management(QUEUE)

    def wait_until(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    with RunningDrain(pair.primary, pair.secondary, [QUEUE], tmp_path, most_locks=0):
        wait_until(lambda: [one.facts.get("state") for one in management.peek(0)] == [1, 1, 1])
        assert answers(pair, 0) == []
        pair.primary.create_queue("rebuilt")
        [answer] = answers(pair, 1)
        assert answer.to == "rebuilt"
        assert pair.numbers("rebuilt", 2) == [0, 1]
        wait_until(lambda: not management.peek(0))
