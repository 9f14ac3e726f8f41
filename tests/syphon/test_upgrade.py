"""A state directory that version 0.1.0 wrote, and was killed over, works under this version.

The files in `fixtures/state_0_1_0` were made by that version: a drain with a limit of 500 messages
a second, whose destination `closed` was disabled, killed with `kill -9`; one journal page is open,
and two task reports were not yet read.
"""

import shutil
from pathlib import Path

import pytest

from pairbus.syphon._sync.coordinator import Coordinator
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.journal import Journal
from pairbus.syphon.orphaned_locks import Inspection
from pairbus.syphon.planner import Planner
from pairbus.syphon.records import Control
from pairbus.syphon.state import StateDirectory
from tests.syphon.fakes import FakeBacklog, FakeBell, FakeOperations, FakeTimeRuntime

QUEUES = [f"contoso/x-servicebus-transfer/{number}" for number in (0, 1)]
KILLED_AT = 1794830773.0
OPEN_TOKENS = [bytes(range(16)), bytes(range(16, 32))]


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    shutil.copytree(Path(__file__).parent / "fixtures" / "state_0_1_0", folder)
    return StateDirectory(folder)


def coordinator_of(state, runtime, backlog, bell, operations):
    return Coordinator(runtime, state, backlog, bell, operations, Planner(QUEUES), HeldMessages())


def test_controls_totals_and_held_messages_are_read(state):
    assert state.control() == Control(max_messages_per_second=500)
    progress = state.progress()
    assert (progress.forwarded, progress.size, progress.received) == (20, 960, 41)
    assert progress.dead_lettered == {"NoDestination": 1}
    assert progress.suspect == tuple(QUEUES)
    held = state.held()
    assert len(held.held) == 20
    assert held.failed == {"closed": "com.microsoft:entity-disabled"}
    assert state.blocked().blocked == {"closed": None}
    assert state.read("status.json")["forwarded"] == 20


def test_a_new_coordinator_continues_where_the_old_one_was_killed(state):
    runtime, backlog, bell = FakeTimeRuntime(KILLED_AT), FakeBacklog(), FakeBell()
    operations = FakeOperations()
    state.begin_run()
    coordinator = coordinator_of(state, runtime, backlog, bell, operations)
    coordinator.start()
    coordinator.close()
    coordinator.tick()
    # The two reports that nobody had read are in the totals, and their operations are counted.
    progress = state.progress()
    assert (progress.forwarded, progress.received) == (23, 45)
    assert progress.dead_lettered == {"NoDestination": 1, "Rejected": 1}
    assert [one.entity for one in operations.counted] == ["orders"]
    assert not state.has_reports()
    # What was held is still held, and the destination is still blocked.
    assert progress.waiting == 21
    assert state.blocked().blocked == {"closed": None}
    # The queue with an open journal page is not read; its reader may have received more.
    journal = Journal(state.path)
    assert [page.is_open for page in journal.uncertain(1)[QUEUES[1]]] == [True]
    bell.ringing = set(QUEUES)
    coordinator.plan(1)
    runtime.now += 2
    coordinator.tick()
    assert QUEUES[1] in [queue for queue, _, _ in backlog.looked]
    assert QUEUES[1] not in [grant.queue for grant in coordinator.plan(1)]
    # When a look finds no unknown lock, both queues are read, at the limit that was set.
    backlog.found = Inspection(True)
    runtime.now += 6
    coordinator.tick()
    grants = coordinator.plan(1)
    assert {grant.queue for grant in grants} == set(QUEUES)
    assert sum(grant.messages for grant in grants) <= 1000


def test_a_retry_finds_the_tokens_that_the_old_version_recorded(state):
    pages = Journal(state.path).take_over(1, QUEUES[1])
    assert [len(page.tokens) for page in pages] == [20, 2]
    assert pages[1].tokens == OPEN_TOKENS
    assert (pages[1].newest, pages[1].is_open) == (40, True)
