"""Stand-ins for the namespaces, the doorbell, the ledger and the clock of a coordinator."""

from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.coordinator import Coordinator
from pairbus.syphon.backoff import Backoff
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.orphaned_locks import Inspection
from pairbus.syphon.planner import Planner
from pairbus.syphon.records import HeldMessage, QueueRead, TaskReport
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import LedgerState, ProgressRecord

HELD = (
    HeldMessage("b/0", "aa", 1, "orders", 1060.0),
    HeldMessage("b/0", "bb", 2, "orders", 1060.0),
)


class FakeTimeRuntime(ThreadRuntime):
    """Threads and files as in production; the clock is set by the test."""

    def __init__(self, now=1000.0):
        self.now = now

    def time(self):
        return self.now


class FakeBacklog:
    """A fake secondary that records its calls. `empty` is None while unknown.

    `lost` is how many of the messages that are abandoned were no longer locked.
    """

    def __init__(self):
        self.lost = 0
        self.given_back, self.renewed, self.empty = [], [], True
        self.deferred, self.browsed, self.pages = [], [], {}
        self.looked, self.found = [], Inspection(False, lock_seconds=60.0, size=100, peeks=1)

    def abandon(self, queue, tokens):
        self.given_back += [(queue, token.hex()) for token in tokens]
        return len(tokens) - self.lost

    def defer(self, queue, tokens):
        self.deferred += [(queue, token.hex()) for token in tokens]
        return True

    def browse(self, queue, first):
        self.browsed.append((queue, first))
        return [one for one in self.pages.get(queue, []) if one.sequence_number >= first][:250]

    def renew(self, queue, tokens):
        self.renewed += [token.hex() for token in tokens]
        return dict.fromkeys(tokens, 1060.0)

    def is_empty(self, queue):
        return self.empty

    def inspect(self, queue, after, known):
        self.looked.append((queue, after, known))
        return self.found


class FakeBell:
    """The doorbell."""

    def __init__(self):
        self.listening, self.ringing, self.busy, self.broke = [], set(), set(), set()
        self.problem = None

    def listen(self, queues):
        self.listening = list(queues)

    def rung(self):
        rung, self.ringing = self.ringing, set()
        return rung

    def armed(self):
        return self.busy

    def freeze(self):
        self.listening = []
        return self.busy

    def take_results(self):
        broke, self.broke = self.broke, set()
        return {}, [], broke

    def close(self):
        self.listening = []


class FakeOperations:
    """The ledger: `answers` are the reasons why it cannot be written, one for each probe."""

    def __init__(self, *answers):
        self.counted, self.answers = [], list(answers)
        self.health = LedgerState()

    def add(self, *counts):
        self.counted += counts

    def flush(self):
        pass

    def probe(self):
        return self.answers.pop(0) if self.answers else None

    def state(self):
        return self.health


class Scene:
    """A coordinator of two queues between fakes."""

    def __init__(self, path, *, until_empty=False, operations=None, is_new=False, **planning):
        self.runtime, self.queues, self.bell = FakeTimeRuntime(), FakeBacklog(), FakeBell()
        self.state = StateDirectory(path).create()
        if not is_new and not self.state.is_known:  # of a new one deferred messages are searched
            self.state.write_progress(ProgressRecord())
        self.operations = operations or FakeOperations()
        self.coordinator = Coordinator(
            self.runtime,
            self.state,
            self.queues,
            self.bell,
            self.operations,
            Planner(["b/0", "b/1"], **planning),
            HeldMessages(destination=Backoff(first=10)),
            until_empty=until_empty,
        )
        self.plan, self.tick = self.coordinator.plan, self.coordinator.tick

    def report(self, **report):
        self.state.report(TaskReport(**report))

    def read(self, queue, messages, more):
        self.report(read={queue: QueueRead(messages, 10 * messages, more)})

    def progress(self):
        """What the coordinator says now."""
        self.tick()
        return self.state.progress()

    def planned_after_tick(self, epoch):
        self.tick()
        return self.planned(epoch)

    def planned(self, epoch):
        return [grant.queue for grant in self.plan(epoch)]
