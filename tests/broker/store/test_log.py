"""The log in front of the tables: what it has gathered is kept, whatever happens on the way."""

from __future__ import annotations

import os
import shutil

import pytest

from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.messages import IncomingMessage, Outcome
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store.log import Log, parse
from pairbus.broker.store.store import DATABASE, GATHER, LOG, Store
from tests.broker.entities.kit import Host


class Folder:
    """A store's folder: work in it, and look at what a process would find that began now."""

    def __init__(self, path) -> None:
        self.path = path
        self.store = Store(path / "live")
        self.ns = Namespace("test", self.store)
        if not self.ns.exists("q"):
            self.ns.create_queue(QueueDescription("q", max_size_in_megabytes=5120))

    def send(self, *bodies: bytes) -> None:
        for body in bodies:
            self.ns.send("q", [IncomingMessage(body)])

    def complete(self, count: int) -> None:
        host = Host()
        receiver = self.ns.open_receiver("q", host)
        receiver.grant(count)
        receiver.settle_many(host.tokens, Outcome.COMPLETE)
        receiver.close()

    def after_a_crash(self) -> list[bytes | None]:
        shutil.rmtree(self.path / "copy", ignore_errors=True)
        shutil.copytree(self.path / "live", self.path / "copy")
        store = Store(self.path / "copy")
        namespace = Namespace("copy", store)
        found: list[bytes | None] = []
        last = -1
        while some := namespace.peek("q", last + 1, 100_000):
            found += [delivery.message.bare for delivery in some]
            last = some[-1].message.sequence_number
        store.close()
        return found

    @property
    def log(self):
        return self.path / "live" / LOG


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path)
    yield folder
    folder.store.close()


def test_small_groups_are_in_the_log_and_found_after_a_crash(folder):
    folder.send(b"one", b"two", b"three")
    folder.complete(1)
    assert len(list(parse(folder.log.read_bytes()))) == 4
    assert folder.after_a_crash() == [b"two", b"three"]
    assert folder.after_a_crash() == [b"two", b"three"]


def test_a_record_that_was_being_written_is_dropped_and_the_rest_is_kept(folder):
    folder.send(b"one", b"two")
    whole = folder.log.read_bytes()
    ends = [end for *_, end in parse(whole)]
    for cut in (ends[0] + 1, ends[0] + 16, ends[1] - 1):
        folder.log.write_bytes(whole[:cut])
        assert folder.after_a_crash() == [b"one"]
    damaged = bytearray(whole)
    damaged[-1] ^= 0xFF
    folder.log.write_bytes(bytes(damaged))
    assert folder.after_a_crash() == [b"one"]
    folder.log.write_bytes(whole + bytes(100))
    assert folder.after_a_crash() == [b"one", b"two"]


def test_a_log_that_is_in_the_tables_already_is_not_applied_twice(folder):
    folder.send(b"one", b"two")
    before = folder.log.read_bytes()
    folder.complete(1)
    folder.ns.create_queue(QueueDescription("other"))  # takes the log along
    assert folder.log.read_bytes() == b""
    folder.log.write_bytes(before)  # killed after the commit, before the log was emptied
    assert folder.after_a_crash() == [b"two"]


def test_what_has_gathered_goes_into_the_tables_and_the_log_starts_anew(folder):
    bodies = [b"%d" % n + b"x" * 100_000 for n in range(GATHER // 100_000 + 2)]
    folder.send(*bodies)
    assert folder.log.stat().st_size < 250_000
    assert folder.after_a_crash() == bodies
    folder.complete(len(bodies))
    assert folder.after_a_crash() == []


def test_a_message_that_came_and_went_never_reaches_the_tables(folder):
    statements = []
    folder.store._write.set_trace_callback(statements.append)
    for n in range(50):
        folder.send(b"%d" % n)
        folder.complete(1)
    folder.ns.create_queue(QueueDescription("other"))
    folder.store._write.set_trace_callback(None)
    assert not [one for one in statements if "message" in one]
    assert folder.after_a_crash() == []


def test_changes_of_a_message_are_found_wherever_it_is(folder):
    folder.send(b"old")
    folder.ns.create_queue(QueueDescription("other"))  # "old" is in the tables now
    folder.send(b"new")
    host = Host()
    receiver = folder.ns.open_receiver("q", host)
    receiver.grant(2)
    for token in host.tokens:
        receiver.settle(token, Outcome.DEFER)
    folder.after_a_crash()
    store = Store(folder.path / "copy")
    found = Namespace("copy", store).peek("q", 0, 10)
    assert [(d.message.delivery_count, d.wire_state) for d in found] == [(1, 1), (1, 1)]
    store.close()


def test_bytes_that_memory_has_no_room_for_are_read_from_the_log(folder):
    folder.ns.context.budget.limit = 0
    folder.send(b"one", b"two")
    assert [d.message.bare for d in folder.ns.peek("q", 0, 10)] == [b"one", b"two"]


def test_a_group_that_the_log_cannot_take_is_refused_and_leaves_nothing(folder, monkeypatch):
    folder.send(b"one")
    real = os.pwritev

    def half(file, buffers, offset):
        return real(file, [b"".join(buffers)[:20]], offset)

    def full(file, buffers, offset):
        raise OSError(28, "No space left on device")

    for broken in (half, full):
        monkeypatch.setattr(os, "pwritev", broken)
        answers: list[Exception | None] = []
        folder.ns.begin_turn()
        folder.send(b"lost")
        folder.ns.after_commit(answers.append)
        folder.ns.end_turn()
        assert isinstance(answers[0], StoreError)
        monkeypatch.setattr(os, "pwritev", real)
        assert folder.after_a_crash() == [b"one"]
        assert folder.ns.runtime("q").active_message_count == 1
    folder.send(b"two")
    assert folder.after_a_crash() == [b"one", b"two"]


def test_a_log_that_cannot_be_cut_is_not_appended_to(folder, monkeypatch):
    def broken(*_):
        raise OSError(5, "Input/output error")

    folder.send(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", broken)
        patch.setattr(os, "ftruncate", broken)
        folder.send(b"lost")
        folder.send(b"two")  # a transaction of its own, which takes the log along
    assert folder.after_a_crash() == [b"one", b"two"]
    folder.send(b"three")
    assert folder.after_a_crash() == [b"one", b"two", b"three"]


def test_a_row_that_the_tables_refuse_does_not_take_the_others_with_it(folder, caplog):
    folder.send(b"one")
    store = folder.store
    store._log.append(([(7, "no number", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)], [], [], [], []))
    folder.send(b"two")
    assert folder.after_a_crash() == [b"one", b"two"]
    assert "left out" in caplog.text


def test_a_log_is_emptied_by_a_tidy_end(folder):
    folder.send(b"one")
    folder.ns.close()
    folder.store.close()
    assert folder.log.read_bytes() == b""
    assert folder.after_a_crash() == [b"one"]


def test_a_closed_log_takes_nothing(tmp_path):
    log = Log(tmp_path / LOG)
    log.close()
    assert not log.is_sound
    assert not (tmp_path / DATABASE).exists()
