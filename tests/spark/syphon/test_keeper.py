"""The keeper's books: what may be read next, who waits, and what survives a restart."""

import os

import pytest

from pairbus.syphon.backoff import Backoff
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.coordinator import Keeper
from pairbus.syphon.held import WaitingRoom
from pairbus.syphon.journal import Journal
from pairbus.syphon.orphaned_locks import Look


class Queues:
    """Stands for the secondary: notes what it is told."""

    def __init__(self):
        self.given_back, self.renewed, self.empty = [], [], True
        self.looked, self.found = [], Look(False, lock=60.0, size=100, peeks=1)

    def give_back(self, queue, tokens):
        self.given_back += [(queue, token.hex()) for token in tokens]
        return True

    def renew(self, queue, tokens):
        self.renewed += [token.hex() for token in tokens]
        return dict.fromkeys(tokens, 1060.0)

    def is_empty(self, queue):
        return self.empty

    def look(self, queue, after, known):
        self.looked.append((queue, after, known))
        return self.found


class Bell:
    """Stands for the doorbell."""

    def __init__(self):
        self.listening, self.ringing, self.busy, self.broke = [], set(), set(), set()

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

    def broken(self):
        broke, self.broke = self.broke, set()
        return broke


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
    StateDir(tmp_path).change_controls(paused=True, max_messages_per_second=10)
    assert office.keeper.plan(0) == []
    assert office.bell.listening == []
    again = Office(tmp_path)
    again.bell.ringing = {"b/0", "b/1"}
    assert again.keeper.plan(0) == []
    StateDir(tmp_path).change_controls(paused=False)
    assert sum(grant.messages for grant in again.keeper.plan(0)) == 10
    again.read("b/0", 10, more=True)
    assert again.keeper.plan(1) == []
    again.now += 0.5
    assert sum(grant.messages for grant in again.keeper.plan(1)) == 5


def test_no_more_bytes_are_read_than_the_limit_allows(office, tmp_path):
    office.bell.ringing = {"b/0"}
    StateDir(tmp_path).change_controls(max_bytes_per_second=1000)
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


def test_what_waited_for_the_primary_is_back_before_anything_is_read(office):
    office.bell.ringing = {"b/0"}
    office.state.report(
        {"held": [["b/0", "aa", 1, "*", 1060.0]], "failed": {"*": "amqp:connection:forced"}}
    )
    assert office.keeper.plan(0) == []
    assert office.queues.given_back == []
    office.now += 2.0  # the primary's time is over, and no tick came yet
    assert office.keeper.plan(0)
    assert office.queues.given_back == [("b/0", "aa")]


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


def test_a_backlog_that_cannot_be_asked_is_not_empty(tmp_path):
    office = Office(tmp_path, until_empty=True)
    office.queues.empty = None  # unknown
    office.keeper.tick()
    for _ in range(3):
        office.now += 3
        office.keeper.tick()
        assert not office.keeper.progress["empty"]
    office.queues.empty = True
    office.now += 3
    office.keeper.tick()
    assert office.keeper.progress["empty"]


def test_a_replayed_epoch_reads_every_queue(office):
    assert {grant.queue for grant in office.keeper.grants(7)} == {"b/0", "b/1"}


TOKENS = [os.urandom(16) for _ in range(5)]


def write_page(journal, *, epoch=3, asks_again=False):
    page = journal.page(epoch, "b/0")
    assert page.ask()
    page.note(TOKENS[:3], 3)
    assert page.ask()
    page.note(TOKENS[3:], 5)
    if asks_again:
        assert page.ask()
    return page


def test_the_journal_gives_tokens_back_newest_first_and_once(tmp_path):
    journal = Journal(tmp_path)
    page = write_page(journal)
    page.close()
    page.close()
    assert journal.take_over(3, "other") == []
    assert journal.take_over(4, "b/0") == []
    assert journal.doubtful(3) == {}
    (left,) = journal.take_over(3, "b/0")
    assert (left.tokens, left.newest, left.is_open) == (TOKENS, 5, False)
    left.given_back()
    assert journal.take_over(3, "b/0") == []
    write_page(journal).close()
    journal.drop_before(4)
    assert journal.take_over(3, "b/0") == []


def test_a_page_whose_reader_asked_and_did_not_note_is_kept_and_leaves_a_doubt(tmp_path):
    journal = Journal(tmp_path)
    write_page(journal, asks_again=True).close()
    journal.drop_before(9)
    assert journal.doubtful(2) == {}
    ((queue, (left,)),) = journal.doubtful(9).items()
    assert (queue, left.tokens, left.newest) == ("b/0", TOKENS, 5)
    left.given_back()
    ((_, (left,)),) = journal.doubtful(9).items()
    assert left.tokens == []
    # A note of which a killed reader could write only a part is as good as none.
    with left.path.open("ab") as file:
        file.write(TOKENS[0])
    ((_, (left,)),) = journal.doubtful(9).items()
    assert (left.tokens, left.is_open) == (TOKENS[:1], True)


def test_a_reader_that_outlives_its_attempt_asks_no_more_and_what_it_notes_is_found(tmp_path):
    journal = Journal(tmp_path)
    page = write_page(journal, asks_again=True)
    (left,) = journal.take_over(3, "b/0")
    assert left.is_open
    left.given_back()
    late = [os.urandom(16)]
    page.note(late, 6)
    assert not page.ask()
    page.note([])
    page.close()
    ((_, (left,)),) = journal.doubtful(3).items()
    assert (left.tokens, left.is_open, left.is_taken_over) == (late, False, True)


def test_a_queue_in_doubt_waits_for_the_locks_to_end_and_the_others_go_on(office, tmp_path):
    journal = Journal(tmp_path)
    write_page(journal, asks_again=True).close()
    journal.take_over(3, "b/0")  # by the retry, which left it alone
    office.bell.ringing = {"b/0", "b/1"}
    granted = [grant.queue for grant in office.keeper.plan(3)]
    assert granted == ["b/1"]
    assert office.queues.looked == []  # credit may still be on its way
    office.read("b/1", 1, more=True)
    office.now += 2
    assert [grant.queue for grant in office.keeper.plan(4)] == ["b/1"]
    assert office.queues.looked == [("b/0", 5, set())]
    assert office.queues.given_back == [("b/0", token.hex()) for token in reversed(TOKENS)]
    assert office.state.read("progress.json")["doubtful"] == ["b/0"]
    operations = [row[1:4] for row in office.counted]
    assert operations == [
        ("receive_backlog", "b/0", "doorbell"), ("settle", "b/0", "released"),
        ("management", "b/0", "peek"), ("settle", "b/0", "abandoned"),
    ]  # fmt: skip
    # What was given back is in the way of another look; a new keeper knows no better.
    again = Office(tmp_path)
    again.now, again.bell.ringing = office.now, {"b/0"}
    for _ in range(6):
        office.now, again.now = office.now + 9, again.now + 9
        assert [grant.queue for grant in office.keeper.plan(4)] == ["b/1"]
        assert again.keeper.plan(4) == []
    assert len(office.queues.looked) == 1
    office.now += 9
    assert {grant.queue for grant in office.keeper.plan(4)} == {"b/0", "b/1"}
    office.keeper.plan(5)
    assert office.state.read("progress.json")["doubtful"] == []
    assert journal.doubtful(9) == {}


def test_a_doubt_ends_as_soon_as_a_look_finds_nothing_locked_that_is_not_known(office, tmp_path):
    office.state.report({"held": HELD, "failed": {"orders": "x"}})
    write_page(Journal(tmp_path), asks_again=True).close()
    office.bell.ringing = {"b/0"}
    assert office.keeper.plan(3) == []
    office.now += 2
    assert office.keeper.plan(3) == []
    assert office.queues.looked == [("b/0", 5, {1, 2})]
    assert office.queues.given_back == []  # its task was not tried again: it has delivered them
    office.queues.found = None  # cannot be asked
    office.now += 5
    assert office.keeper.plan(3) == []
    office.queues.found = Look(True)
    office.now += 4
    assert office.keeper.plan(3) == []  # not yet time
    office.now += 1
    assert [grant.queue for grant in office.keeper.plan(3)] == ["b/0"]


def test_a_reader_that_lived_ends_the_doubt_when_it_has_noted_everything(office, tmp_path):
    journal = Journal(tmp_path)
    page = write_page(journal, asks_again=True)
    journal.take_over(3, "b/0")
    office.bell.ringing = {"b/0"}
    office.keeper.plan(3)
    office.now += 2
    assert office.keeper.plan(3) == []
    late = os.urandom(16)
    page.note([late], 6)
    page.close()
    office.now += 5
    assert office.keeper.plan(3)
    assert office.queues.given_back[-1] == ("b/0", late.hex())


def test_a_stop_gives_back_what_a_dead_reader_had_noted(office, tmp_path):
    journal = Journal(tmp_path)
    write_page(journal, asks_again=True).close()
    journal.take_over(3, "b/0")
    office.state.ask_to_stop()
    office.keeper.plan(3)
    office.keeper.tick()
    office.keeper.tick()
    assert office.queues.given_back == [("b/0", token.hex()) for token in reversed(TOKENS)]
    assert journal.doubtful(3)["b/0"][0].is_open  # for whoever comes next


@pytest.mark.parametrize("how", ["restart", "bell", "report", "not given back"])
def test_whatever_may_leave_a_message_locked_puts_its_queue_in_doubt(office, tmp_path, how):
    if how == "restart":  # a message may have rung when the former one died
        office.keeper.plan(0)
        office = Office(tmp_path)
        office.keeper.start()
        office.keeper.close()
    elif how == "bell":
        office.bell.broke = {"b/0"}
    elif how == "report":
        office.state.report({"doubtful": ["b/0"]})
    else:
        office.queues.give_back = lambda queue, tokens: False
        office.state.report({"held": HELD, "failed": {"orders": "x"}})
        office.keeper.tick()
        office.now += 10
    office.keeper.tick()
    office.bell.ringing = {"b/0"}
    assert office.keeper.plan(0) == []
    office.queues.found = Look(True)
    office.now += 2
    assert [grant.queue for grant in office.keeper.plan(0)] == ["b/0"]
    assert office.queues.looked[0][:2] == ("b/0", 0)


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
