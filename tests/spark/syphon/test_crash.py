"""kill -9 at random moments, under load: nothing is lost, and what is doubled was in flight.

Brokers and syphon are processes of their own, started by the command line. At each kill the syphon
stands still for a moment, so that what is in flight can be counted: *locked* is what the syphon
holds in the backlog, *taken* is what of it the primary has already. The moments come from a seed
that is printed; PAIRBUS_CRASH_SEED repeats them.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from pairbus.administration import admin_client
from pairbus.client import BulkConnection
from pairbus.envelope.encoded import open_message
from pairbus.runtime import LocalFiles, ThreadRuntime
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon.journal import Journal, JournalPage
from pairbus.syphon.rows import message_id
from pairbus.syphon.target import Target
from tests.syphon.conftest import PREFIX, backlog_message, order_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(900),
]
SEED = int(os.environ.get("PAIRBUS_CRASH_SEED") or random.randrange(10**6))
KEY = "S3cr3tKeyOfTheCrashTest"
QUEUES, EACH = 2, 2500
BATCH = 200  # messages of a queue in one micro-batch
SLOW = 0.3  # seconds that the primary takes to answer: meanwhile a message is sent and not settled


class BrokerProcess:
    """A broker that keeps its data, and comes back where it was."""

    def __init__(self, name, data, slow=0.0):
        self.name, self.data, self.slow, self.port, self.process = name, data, slow, 0, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pairbus", "broker", "run", "--namespace", self.name, "--json",
             "--port", str(self.port), "--data", str(self.data), "--credits-per-second", "0"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PAIRBUS_BROKER_KEY": KEY},
        )  # fmt: skip
        ready = json.loads(self.process.stdout.readline())
        self.port = ready["port"]
        self.connection_string = ready["connection_string"]
        if self.slow:
            fault = {"kind": "delay", "on": "send", "delay": self.slow}
            place = f"http://127.0.0.1:{self.port}/$control/faults"
            urllib.request.urlopen(place, data=json.dumps(fault).encode()).close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def kill_and_restart(self):
        self.kill()
        self.start()


class Crash:
    """Two brokers with a full backlog, and a syphon that can be killed in many ways."""

    def __init__(self, folder):
        print(f"PAIRBUS_CRASH_SEED={SEED}")
        self.random = random.Random(SEED)
        self.folder = folder
        self.primary = BrokerProcess("contoso", folder / "primary", SLOW)
        self.secondary = BrokerProcess("contoso-dr", folder / "secondary")
        self.syphon = None
        self.output = b""
        self.errors = (folder / "errors").open("ab")
        with admin_client(self.primary.connection_string) as admin:
            admin.create_queue("plain")
            admin.create_queue("unique", requires_duplicate_detection=True)
        with admin_client(self.secondary.connection_string) as admin:
            for number in range(QUEUES):
                admin.create_queue(
                    f"{PREFIX}/{number}", lock_duration="PT30S", max_delivery_count=2147483647
                )
        self.sent = {"plain": set(), "unique": set()}
        self.allowed = 0  # copies, by what was in flight when something was killed

    def fill(self):
        with BulkConnection(self.secondary.connection_string) as connection:
            for number in range(QUEUES):
                sender = connection.sender(f"{PREFIX}/{number}")
                first = self.filled * EACH
                messages = [
                    backlog_message(("plain", "unique")[n % 2], n, more={"q": number})
                    for n in range(first, first + EACH)
                ]
                for outcome in sender.send_batch(messages):
                    assert outcome.is_accepted
                for n, message in enumerate(messages):
                    self.sent[("plain", "unique")[n % 2]].add(identity(message))
        self.filled += 1

    filled = 0

    def start(self, *arguments):
        if self.syphon is not None and not self.syphon.stdout.closed:
            self.finish_output()
        (self.folder / "checkpoint" / "status.json").unlink(missing_ok=True)
        self.syphon = subprocess.Popen(
            [sys.executable, "-m", "pairbus", "syphon", "run", "--primary-namespace", "contoso",
             "--queues", str(QUEUES), "--checkpoint", str(self.folder / "checkpoint"),
             "--ledger", str(self.folder / "ledger"), "--master", "local[2]",
             "--max-messages-per-trigger", str(BATCH), "--credits-per-second", "0", "--json",
             *arguments],
            stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
            env={
                **os.environ,
                "PAIRBUS_PRIMARY": self.primary.connection_string,
                "PAIRBUS_SECONDARY": self.secondary.connection_string,
            },
        )  # fmt: skip

    def forwarded(self):
        try:
            progress = json.loads((self.folder / "checkpoint" / "progress.json").read_text())
        except (OSError, ValueError):
            return 0
        return progress["forwarded"]

    def wait_for(self, forwarded, timeout=240):
        deadline = time.monotonic() + timeout
        while self.forwarded() < forwarded:
            assert time.monotonic() < deadline, (self.forwarded(), forwarded)
            assert self.syphon.poll() is None, self.told()
            time.sleep(0.02)

    def moment(self):
        """Wait for a random moment of the drain: somewhere in a micro-batch that has begun."""
        if sum(map(len, self.sent.values())) - self.forwarded() < EACH:
            self.fill()
        self.wait_for(self.forwarded() + self.random.randint(1, 2 * BATCH))
        before = self.pages()
        deadline = time.monotonic() + 60
        while not self.pages() - before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(self.random.random())

    def pages(self):
        """The pages of the journal: a new one is there when a queue is read once more."""
        return set((self.folder / "checkpoint" / "journal").rglob("*@*"))

    @contextlib.contextmanager
    def standing_still(self):
        """The syphon stands still: count what is in flight, and go on."""
        processes = [psutil.Process(self.syphon.pid)]
        processes += processes[0].children(recursive=True)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            time.sleep(0.2)  # what was on its way to the brokers arrives
            yield self.in_flight()
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def in_flight(self):
        """(locked, taken): what the syphon holds, and what of the backlog the primary has."""
        target = Target(self.secondary.connection_string)
        connections = NamespaceConnections(ConnectionPool(ThreadRuntime()), target, "test")
        backlog, locked = BacklogQueues(ThreadRuntime(), connections), 0
        for page in [JournalPage(p, p.read_bytes(), LocalFiles()) for p in self.pages()]:
            ends = backlog.renew(page.queue, page.tokens) if page.tokens else {}
            locked += sum(end is not None for end in ends.values())  # None: it was settled
        return locked, self.taken()

    def taken(self):
        """How many messages are in the backlog although the primary has them."""
        with BulkConnection(self.secondary.connection_string) as connection:
            backlog = Counter()
            for number in range(QUEUES):
                backlog += browse(connection, f"{PREFIX}/{number}")
        with BulkConnection(self.primary.connection_string) as connection:
            arrived = browse(connection, "plain")
        return len(backlog.keys() & arrived.keys())

    def asking(self, timeout=60):
        """A reader that was given messages, and stands still before it could note one of them."""
        secondary = psutil.Process(self.secondary.process.pid)
        deadline = time.monotonic() + timeout
        secondary.suspend()  # so that a reader waits for it
        try:
            while (reader := self.reader()) is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            reader.suspend()
        finally:
            secondary.resume()
        time.sleep(0.3)  # what it asked for is handed out
        return reader

    def reader(self):
        """A process whose page in the journal is open."""
        pages = Journal(self.folder / "checkpoint").uncertain(1 << 62)
        wanted = {str(page.path) for some in pages.values() for page in some if page.is_open}
        for process in psutil.Process(self.syphon.pid).children(recursive=True) if wanted else ():
            with contextlib.suppress(psutil.Error):
                if wanted & {file.path for file in process.open_files()}:
                    return process
        return None

    def doubtful(self):
        """The queues that wait until all that was handed out is back."""
        return json.loads((self.folder / "checkpoint" / "progress.json").read_text())["doubtful"]

    def finish_output(self):
        """What the last syphon printed, when it has ended."""
        with self.syphon.stdout:
            printed = self.syphon.stdout.read().decode()
        self.output += printed.encode()
        return printed

    def told(self):
        return (self.folder / "errors").read_text()

    def child(self, pattern, timeout=30):
        """A process below the syphon, any of those that fit."""
        deadline = time.monotonic() + timeout
        while True:
            children = psutil.Process(self.syphon.pid).children(recursive=True)
            self.random.shuffle(children)
            for process in children:
                with contextlib.suppress(psutil.NoSuchProcess):  # helpers come and go
                    if pattern(process):
                        return process
            assert time.monotonic() < deadline, children
            time.sleep(0.1)

    def ended(self):
        """It was asked to end: it does, and has settled or given back all it held."""
        assert self.syphon.wait(60) == 0, self.told()
        assert json.loads(self.finish_output())["state"] == "stopped"
        self.gone()
        assert self.in_flight() == (0, 0)

    def doubled(self):
        """How many copies the primary has of messages that it has already."""
        with BulkConnection(self.primary.connection_string) as connection:
            ids = browse(connection, "plain")
        return sum(ids.values()) - len(ids)

    def gone(self, timeout=30):
        """Wait until the processes of the last syphon are gone, its helpers included."""
        deadline = time.monotonic() + timeout
        while any(is_of_session(process, self.syphon.pid) for process in psutil.process_iter()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.2)  # what was on its way to the brokers arrives

    def received(self, queue):
        with BulkConnection(self.primary.connection_string) as connection:
            receiver = connection.receiver(queue)
            got = []
            while some := receiver.receive_now(1000):
                receiver.complete(some)
                got += some
            return got

    def check(self):
        """0 lost; none doubled where duplicates are detected; a receipt for each; order kept."""
        receipts = {
            row["message_id"]
            for path in (self.folder / "ledger" / "messages").glob("*.parquet")
            for row in pq.read_table(path).to_pylist()
            if row["event"] == "forwarded"
        }
        for queue in ("plain", "unique"):
            got = self.received(queue)
            ids = Counter(str(one.message.properties.message_id) for one in got)
            lost = self.sent[queue] - ids.keys()
            assert not lost, f"{queue}: {len(lost)} lost"
            assert not ids.keys() - self.sent[queue]  # a copy has its original message id
            if queue == "unique":
                assert set(ids.values()) == {1}
            assert not ids.keys() - receipts
            for number in range(QUEUES):
                order = order_of(got, number)
                assert order == sorted(order), f"{queue}: order of queue {number}"

    def close(self):
        for process in (self.syphon, self.primary.process, self.secondary.process):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            if process is not None and process.stdout and not process.stdout.closed:
                process.stdout.close()
        self.errors.close()


@pytest.fixture
def crash(tmp_path):
    made = Crash(tmp_path)
    yield made
    made.close()


def identity(message):
    return message_id(message, open_message(message, aliases=False).properties)


def browse(connection, entity):
    """The message ids in an entity, locked or not, nothing touched."""
    found, first = Counter(), 0
    management = connection.management(entity)
    while some := management.peek(first, 250):
        found.update(identity(one.payload) for one in some)
        first = 1 + max(one.sequence_number for one in some)
    return found


def is_of_session(process, leader):
    try:
        return os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.NoSuchProcess):
        return False


def is_worker(process):
    return "pyspark.daemon" in " ".join(process.cmdline()) and not process.children()


def test_kills_lose_nothing_double_what_was_in_flight_and_signals_end_cleanly(crash):
    crash.fill()
    crash.fill()
    crash.start()
    crash.moment()
    reader = crash.asking()
    with crash.standing_still() as (locked, taken):
        print(f"reader killed with {locked} locked, {taken} taken")
        crash.allowed += taken
        reader.kill()
    deadline = time.monotonic() + 60
    while not crash.doubtful():  # what it was given is not passed; the other queue goes on
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kinds = ["worker", "secondary", "primary"] * 2
    crash.random.shuffle(kinds)
    for kind in kinds:
        crash.moment()
        victim = crash.child(is_worker) if kind == "worker" else None
        with crash.standing_still() as (locked, taken):
            print(f"{kind} killed with {locked} locked, {taken} taken")
            if victim is not None:
                victim.kill()
            else:
                getattr(crash, kind).kill_and_restart()
        # A secondary forgets locks when it dies: what is in hand is sent, and cannot be settled.
        crash.allowed += locked if kind == "secondary" else taken
    crash.moment()
    os.killpg(os.getpgid(crash.syphon.pid), signal.SIGINT)  # as a terminal does: to all of them
    crash.ended()
    doubled = crash.doubled()
    assert doubled <= crash.allowed
    # From here on it is exact: what is in the backlog when all stand still is sent once more.
    for kind in ("driver", "jvm", "term"):
        crash.start()
        crash.moment()
        if kind == "driver":
            crash.syphon.kill()
            crash.syphon.wait()
        elif kind == "jvm":
            crash.child(lambda process: process.name() == "java").kill()
            assert crash.syphon.wait(60) != 0
        else:
            crash.syphon.terminate()
        if kind == "term":
            crash.ended()
        else:
            crash.gone()
            taken = crash.taken()
            print(f"{kind} killed with {taken} taken")
            doubled += taken
    crash.start("--until-empty", "--max-messages-per-trigger", "5000")
    assert crash.syphon.wait(300) == 0, crash.told()
    crash.finish_output()
    assert crash.doubled() == doubled
    crash.check()
    # No secret anywhere: output, checkpoint, ledger.
    assert KEY.encode() not in crash.output
    assert KEY not in crash.told()
    for root in ("checkpoint", "ledger"):
        for path in Path(crash.folder / root).rglob("*"):
            assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
