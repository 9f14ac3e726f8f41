"""The keeper's books: what may be read next, who waits, and what survives a restart."""

import os

import pytest

from pairbus.core.syphon import Backoff
from pairbus.core.syphon_waiting import WaitingRoom
from pairbus.spark.controls import StateDir
from pairbus.spark.journal import Journal
from pairbus.spark.keeper import Keeper


class Queues:
    """Stands for the secondary: notes what it is told."""

    def __init__(self):
        self.given_back, self.renewed, self.empty = [], [], True

    def give_back(self, queue, tokens):
        self.given_back += [(queue, token.hex()) for token in tokens]

    def renew(self, queue, tokens):
        self.renewed += [token.hex() for token in tokens]
        return dict.fromkeys(tokens, 1060.0)

    def is_empty(self, queue):
        return self.empty


class Bell:
    """Stands for the doorbell."""

    def __init__(self):
        self.listening, self.ringing, self.busy = [], set(), set()

    def listen(self, queues):
        self.listening = list(queues)

    def rung(self):
        rung, self.ringing = self.ringing, set()
        return rung

    def armed(self):
        return self.busy

    def polls(self):
        return {}

    def rings(self):
        return []


class Office:
    def __init__(self, path, **options):
        self.now, self.queues, self.bell = 1000.0, Queues(), Bell()
        self.state = StateDir(path)
        self.counted = []
        self.keeper = Keeper(
            ["b/0", "b/1"], self.state, self.queues, self.bell, clock=lambda: self.now,
            count=lambda *row: self.counted.append(row),
            room=WaitingRoom(destination=Backoff(first=10)), **options,
        )  # fmt: skip

    def read(self, queue, messages, more):
        self.state.report(
            {"read": {queue: {"messages": messages, "bytes": 10 * messages, "more": more}}}
        )


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path)


def test_nothing_is_read_until_the_bell_rings(office):
    assert office.keeper.plan(0) == []
    assert office.bell.listening == ["b/0", "b/1"]
    office.bell.ringing = {"b/1"}
    assert [grant.queue for grant in office.keeper.plan(0)] == ["b/1"]
    assert office.bell.listening == ["b/0"]


def test_a_queue_is_read_until_it_has_no_more(office):
    office.bell.ringing = {"b/0"}
    office.keeper.plan(0)
    office.read("b/0", 5000, more=True)
    assert office.keeper.plan(1)
    office.read("b/0", 12, more=False)
    assert office.keeper.plan(2) == []
    assert office.keeper.progress["received"] == 5012


def test_a_queue_is_not_read_while_a_poll_may_hold_its_oldest_message(office):
    office.bell.ringing, office.bell.busy = {"b/0"}, {"b/0"}
    assert office.keeper.plan(0) == []
    office.bell.busy = set()
    assert office.keeper.plan(0)


def test_pause_and_limits_survive_in_the_control_file(office, tmp_path):
    office.bell.ringing = {"b/0", "b/1"}
    StateDir(tmp_path).set_control(paused=True, max_messages_per_second=10)
    assert office.keeper.plan(0) == []
    assert office.bell.listening == []
    again = Office(tmp_path)
    again.bell.ringing = {"b/0", "b/1"}
    assert again.keeper.plan(0) == []
    StateDir(tmp_path).set_control(paused=False)
    assert sum(grant.messages for grant in again.keeper.plan(0)) == 10
    again.read("b/0", 10, more=True)
    assert again.keeper.plan(1) == []
    again.now += 0.5
    assert sum(grant.messages for grant in again.keeper.plan(1)) == 5


def test_no_more_bytes_are_read_than_the_limit_allows(office, tmp_path):
    office.bell.ringing = {"b/0"}
    StateDir(tmp_path).set_control(max_bytes_per_second=1000)
    assert [grant.size for grant in office.keeper.plan(0)] == [1000]
    office.read("b/0", 100, more=True)
    assert office.keeper.plan(1) == []
    office.now += 0.25
    assert [grant.size for grant in office.keeper.plan(1)] == [250]


def test_one_message_finds_out_whether_the_primary_is_back(office):
    office.bell.ringing = {"b/0", "b/1"}

    def granted(epoch):
        office.now += 100
        return sum(grant.messages for grant in office.keeper.plan(epoch))

    assert granted(0) == 10_000
    office.state.report({"failed": {"*": "amqp:connection:forced"}})
    assert office.keeper.plan(1) == []  # it waits
    assert granted(1) == 1
    office.state.report({"failed": {"*": "amqp:connection:forced"}})
    assert office.keeper.plan(2) == []
    assert [granted(2), granted(3), granted(4)] == [1, 2, 4]  # nothing said that it is down
    office.state.report({"forwarded": 1, "delivered": ["orders"]})
    assert granted(5) == 10_000


def test_no_more_than_the_bound_is_read(tmp_path):
    office = Office(tmp_path, max_messages=7)
    office.bell.ringing = {"b/0"}
    assert [grant.messages for grant in office.keeper.plan(0)] == [7]
    office.read("b/0", 7, more=True)
    assert office.keeper.plan(1) == []
    assert office.keeper.progress["drained"]


HELD = [["b/0", "aa", 1, "orders", 1060.0], ["b/0", "bb", 2, "orders", 1060.0]]


def test_what_waits_stays_locked_is_renewed_and_probed(office):
    office.state.report({"held": HELD, "failed": {"orders": "com.microsoft:entity-disabled"}})
    office.keeper.tick()
    assert office.queues.given_back == []
    assert office.state.read("waiting.json")["blocked"] == {"orders": None}
    assert office.keeper.progress["waiting"] == 2
    office.now += 10
    office.keeper.tick()
    assert office.queues.given_back == [("b/0", "aa")]
    assert office.state.read("waiting.json")["blocked"] == {"orders": ["b/0", 1]}
    office.now += 25
    office.keeper.tick()
    assert office.queues.renewed == ["bb"]
    office.state.report({"forwarded": 1, "delivered": ["orders"]})
    office.keeper.tick()
    assert office.queues.given_back == [("b/0", "aa"), ("b/0", "bb")]
    assert office.keeper.progress["waiting"] == 0


def test_a_new_keeper_finds_the_waiting_room_again(office, tmp_path):
    office.state.report({"held": HELD, "failed": {"orders": "com.microsoft:entity-disabled"}})
    office.keeper.tick()
    again = Office(tmp_path)
    again.keeper.start()
    again.keeper.close()
    assert again.state.read("waiting.json")["blocked"] == {"orders": None}
    again.now += 35
    again.keeper.tick()
    assert again.queues.renewed == ["bb"]  # the other was given back as a probe
    assert again.queues.given_back == [("b/0", "aa")]


def test_a_stop_gives_everything_back_newest_first(office):
    office.state.report({"held": HELD, "failed": {"orders": "x"}})
    office.state.ask_to_stop()
    office.keeper.tick()
    assert office.queues.given_back == [("b/0", "bb"), ("b/0", "aa")]
    assert office.state.read("progress.json")["released"]


def test_a_busy_primary_stops_all_reading_for_ten_seconds(office):
    office.bell.ringing = {"b/0"}
    office.state.report(
        {"held": [["b/0", "aa", 1, "*", 1060.0]], "failed": {"*": "com.microsoft:server-busy"}}
    )
    office.keeper.tick()
    assert office.keeper.plan(0) == []
    assert office.keeper.progress["problem"] == "primary: com.microsoft:server-busy"
    office.now += 10
    office.keeper.tick()
    assert office.queues.given_back == [("b/0", "aa")]
    assert office.keeper.plan(0)


def test_a_ledger_that_takes_no_receipt_stalls_until_it_does(tmp_path):
    answers = ["disk full", None]
    office = Office(tmp_path, probe_ledger=lambda: answers.pop(0))
    office.bell.ringing = {"b/0"}
    office.state.report({"stalled": "ledger: disk full"})
    office.keeper.tick()
    assert office.keeper.progress["problem"] == "ledger: disk full"
    assert office.keeper.plan(0) == []
    office.now += 3
    office.keeper.tick()
    assert office.keeper.plan(0)


def test_totals_are_added_up_and_operations_counted(office, tmp_path):
    row = ["contoso", "send_primary", "orders", "send", 1, 3, 30, 3]
    for _ in range(2):
        office.state.report(
            {"forwarded": 3, "bytes": 30, "dead_lettered": {"Rejected": 1}, "operations": [row]}
        )
    office.keeper.tick()
    assert office.counted == [tuple(row)] * 2
    again = Office(tmp_path)
    assert again.keeper.progress["forwarded"] == 6
    assert again.keeper.progress["dead_lettered"] == {"Rejected": 2}


def test_empty_means_that_nothing_is_left_not_even_locked(tmp_path):
    office = Office(tmp_path, until_empty=True)
    office.queues.empty = False
    office.keeper.tick()
    office.now += 3
    office.keeper.tick()
    assert not office.keeper.progress["empty"]
    office.queues.empty = True
    office.now += 3
    office.keeper.tick()
    assert office.keeper.progress["empty"]


def test_a_replayed_epoch_reads_every_queue(office):
    assert {grant.queue for grant in office.keeper.grants(7)} == {"b/0", "b/1"}


def test_the_journal_gives_tokens_back_newest_first_and_once(tmp_path):
    journal = Journal(tmp_path)
    tokens = [os.urandom(16) for _ in range(5)]
    page = journal.page(3, "a/b")
    page.note(tokens[:3])
    page.note(tokens[3:])
    page.close()
    page.close()
    assert journal.earlier(3, "a/b") == tokens[::-1]
    assert journal.earlier(3, "other") == []
    assert journal.earlier(4, "a/b") == []
    assert journal.received(3) == {"a/b": 5}
    journal.forget(3, "a/b")
    assert journal.earlier(3, "a/b") == []
    journal.drop_before(4)
    assert journal.received(3) == {}


def test_a_new_run_goes_on_with_the_totals_and_not_with_the_end(tmp_path):
    state = StateDir(tmp_path).create()
    state.ask_to_stop()
    told = {"forwarded": 5, "empty": True, "drained": True, "released": True}
    state.write("progress.json", told)
    state.begin()
    assert not state.stopping
    found = state.read("progress.json")
    assert found["forwarded"] == 5
    assert not any(found[name] for name in ("empty", "drained", "released"))
