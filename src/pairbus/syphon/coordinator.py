"""The keeper: the part of the syphon that lives as long as the query, beside Spark's driver.

Spark keeps one Python process for a streaming source; the keeper is a thread in it. It reads the
reports of tasks, adds up totals, renews the locks of messages in the waiting room, gives them back
when their time has come, and says what the next micro-batch may read. What tasks must know of it is
in files of the state directory; when it dies, a new one finds everything there again.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from pairbus.names import billable
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.held import EVERYTHING, Held, WaitingRoom
from pairbus.syphon.journal import Journal
from pairbus.syphon.limits import Bucket, Grant, share
from pairbus.syphon.orphaned_locks import Doubts, Look

__all__ = ["Backlog", "Bell", "Keeper"]

log = logging.getLogger("pairbus.syphon")

TICK = 0.5
SAVE_EVERY = 5.0
FLUSH_EVERY = 10.0


class Backlog(Protocol):
    """The secondary, as the keeper sees it."""

    def give_back(self, queue: str, tokens: Sequence[bytes]) -> bool:
        """Abandon locks, in this order; False if the queue could not be asked to."""

    def renew(self, queue: str, tokens: Sequence[bytes]) -> dict[bytes, float]:
        """Renew locks: until when each lasts now; a lock that was lost is left out."""

    def is_empty(self, queue: str) -> bool | None:
        """Whether there is no message at all, locked ones included; None if that is not known."""

    def look(self, queue: str, after: int, known: Collection[int]) -> Look | None:
        """Whether messages are locked that nobody knows of; None if it could not be asked."""


class Bell(Protocol):
    """The doorbell, as the keeper sees it."""

    def listen(self, queues: Sequence[str]) -> None:
        """Hold one long poll on each of these queues, and on no other."""

    def rung(self) -> set[str]:
        """The queues where a message arrived; each is told once."""

    def armed(self) -> set[str]:
        """The queues where a poll is under way: it may hold a message for a moment."""

    def polls(self) -> dict[str, int]:
        """Receives that began since the last call, by queue."""

    def rings(self) -> list[tuple[str, int]]:
        """Messages that rang since the last call: their queue and their bytes."""

    def broken(self) -> set[str]:
        """The queues where a poll broke off: a message may be locked; each is told once."""


class Keeper:
    """Keeps the books of one syphon.

    Args:
        queues: paths of the backlog queues.
        state: the state directory.
        backlog: the secondary.
        bell: the doorbell.
        namespace: the secondary's name in the ledger.
        count: notes an operation in the ledger: namespace, stage, entity, operation, calls,
            messages, bytes, billable; `flush` makes the notes durable.
        probe_ledger: None, or in one line why no receipt could be written now.
        connection_problem: None, or in one line why the secondary cannot be reached.
        per_queue: cap of messages of one queue in one micro-batch.
        bytes_per_queue: cap of bytes.
        max_messages: read this many in all.
        warm: queues to read before their bell rings.
        room: the waiting room.
        clock: seconds since 1970.
        until_empty: find out whether the queues are empty, and say so in the progress.
    """

    def __init__(
        self,
        queues: Sequence[str],
        state: StateDir,
        backlog: Backlog,
        bell: Bell,
        *,
        namespace: str = "secondary",
        count: Callable[..., None] = lambda *_a: None,
        flush: Callable[[], bool] = lambda: True,
        probe_ledger: Callable[[], str | None] = lambda: None,
        connection_problem: Callable[[], str | None] = lambda: None,
        per_queue: int = 5000,
        bytes_per_queue: int = 64 << 20,
        max_messages: int | None = None,
        until_empty: bool = False,
        warm: Sequence[str] = (),
        room: WaitingRoom | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queues = list(queues)
        self._state = state.create()
        self._journal = Journal(state.path)
        self._backlog = backlog
        self._bell = bell
        self._namespace = namespace
        self._count = count
        self._flush = flush
        self._probe_ledger = probe_ledger
        self._connection_problem = connection_problem
        self._per_queue = per_queue
        self._bytes_per_queue = bytes_per_queue
        self._max_messages = max_messages
        self._until_empty = until_empty
        self._clock = clock
        self._lock = threading.RLock()
        self._room = room or WaitingRoom()
        self._warm: set[str] = set(warm)
        self._listens = True
        self._done: set[str] = set()  # a bounded drain has all of these queues
        self._grants: dict[int, list[Grant]] = {}
        self._messages, self._bytes = Bucket(), Bucket()
        self._cautious: int | None = None  # read no more than this: the primary failed last time
        self._read_total = 0
        self._lock_seconds: float | None = None  # as last seen
        self._doubts = Doubts(self._journal, backlog, self._note)
        self._listening: list[str] = []
        self._searched: int | None = None  # the epoch after which the journal was looked into
        self._problem: str | None = None
        self._problem_checked = 0.0
        self._oldest: dict[str, int | None] = {}  # as last seen, where there was more
        self._empty_since: float | None = None
        self._empty_checked = 0.0
        self._saved_at = 0.0
        self._counted, self._flushed_at = False, 0.0
        self._room_changed = False
        self._blocked_written: Any = None
        self._released = False
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        old = state.read("progress.json")
        self.progress: dict[str, Any] = {
            "forwarded": old.get("forwarded", 0),
            "bytes": old.get("bytes", 0),
            "dead_lettered": dict(old.get("dead_lettered", {})),
            "received": old.get("received", 0),
            "waiting": 0,
            "waiting_for": {},
            "in_flight": 0,
            "problem": None,
            "begun": False,
            "empty": False,
            "listening": False,
            "drained": False,
            "doubtful": [],
            "suspect": old.get("suspect", []),  # these would be in doubt if the keeper died now
        }
        self._progress_written: Any = None

    # -- life

    def start(self) -> None:
        """Remember what a former keeper held, and begin to keep."""
        now = self._clock()
        held = self._state.read("held.json")
        for destination, condition in held.get("failed", {}).items():
            self._room.failed(destination, condition, now)
        self._room.hold([Held(*row) for row in held.get("held", [])], now)
        for queue in self.progress["suspect"]:  # a message may have rung when the last one died
            self._doubts.add(queue, now)
        self._write_blocked()
        self.progress["begun"] = True
        self._thread = threading.Thread(target=self._run, name="pairbus-keeper", daemon=True)
        self._thread.start()

    def empty_once(self) -> None:
        """Read every queue until it is found empty, and do not listen for more."""
        with self._lock:
            self._warm = set(self._queues)
            self._listens = False

    def close(self) -> None:
        """Stop keeping."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(TICK):
            try:
                self.tick()
            except Exception as exc:  # noqa: BLE001 - the keeper outlives every failure
                log.warning("keeper: %s", exc)
                self._problem = f"secondary: {exc}"
                self._write_progress()

    # -- every half second

    def tick(self) -> None:
        """Read reports, renew, give back, write down."""
        with self._lock:
            now = self._clock()
            self._collect(now)
            self._check_ledger(now)
            if self._state.stopping:
                self._doubts.release()
                self._release_all()
            else:
                self._give_back(self._room.due(now))
            self._renew(now)
            self._look_for_empty(now)
            self._save(now)
            self._write_blocked()
            self._write_progress()

    def _collect(self, now: float) -> None:
        for path, report in self._state.reports():
            self._use(report, now)
            path.unlink(missing_ok=True)
            self._counted = True
        for queue, polls in self._bell.polls().items():
            self._note("idle_poll", queue, "receive", polls, 0, 0, polls)
            self._counted = True
        for queue, size in self._bell.rings():
            # The poll that rang is counted; what its message has beyond 64 KB is not, nor is
            # giving it back.
            self._note("receive_backlog", queue, "doorbell", 1, 0, size, billable(size) - 1)
            self._note("settle", queue, "released", 1, 1, 0, 1)
            self._counted = True
        for queue in self._bell.broken():
            self._doubts.add(queue, now)
        if self._counted and (now - self._flushed_at >= FLUSH_EVERY or self._state.stopping):
            self._flush()
            self._counted, self._flushed_at = False, now

    def _note(self, stage: str, entity: str, operation: str, *numbers: int) -> None:
        """Count what the keeper did itself."""
        self._count(self._namespace, stage, entity, operation, *numbers)

    def _use(self, report: dict[str, Any], now: float) -> None:
        progress = self.progress
        progress["forwarded"] += report.get("forwarded", 0)
        progress["bytes"] += report.get("bytes", 0)
        for reason, number in report.get("dead_lettered", {}).items():
            progress["dead_lettered"][reason] = progress["dead_lettered"].get(reason, 0) + number
        for row in report.get("operations", []):
            self._count(*row)
        for queue, read in report.get("read", {}).items():
            progress["received"] += read["messages"]
            self._read_total += read["messages"]
            self._messages = self._messages.charge(read["messages"])
            self._bytes = self._bytes.charge(read["bytes"])
            if read.get("lock"):
                self._lock_seconds = float(read["lock"])
            if not read["more"]:
                self._warm.discard(queue)
            self._oldest[queue] = read.get("oldest") if read["more"] else None
            if read.get("done"):
                self._done.add(queue)
        if EVERYTHING in report.get("failed", {}):
            self._cautious = 1
        elif report.get("forwarded"):
            self._cautious = None
            self._room.succeeded(now)
        for queue in report.get("doubtful", []):
            self._doubts.add(queue, now)
        if report.get("stalled"):
            self._problem = str(report["stalled"])
        for destination, condition in report.get("failed", {}).items():
            self._room.failed(destination, condition, now)
        held = [Held(*row) for row in report.get("held", [])]
        if held:
            self._room.hold(held, now)
        self._give_back(
            self._room.delivered(
                d for d in report.get("delivered", []) if d not in report.get("failed", {})
            )
        )
        self._room_changed = self._room_changed or bool(held or report.get("failed"))

    def _check_ledger(self, now: float) -> None:
        problem = self._problem
        if problem and problem.startswith("ledger") and now - self._problem_checked >= 2:
            self._problem_checked = now
            reason = self._probe_ledger()
            self._problem = f"ledger: {reason}" if reason else None
        elif problem and not problem.startswith("ledger"):
            self._problem = None  # it was said; if it lasts, it will be said again

    def _renew(self, now: float) -> None:
        for queue, tokens in self._room.renewals(now, lock=self._lock_seconds or 60.0).items():
            until = self._backlog.renew(queue, [bytes.fromhex(t) for t in tokens])
            self._note("management", queue, "renew", 1, len(tokens), 0, len(tokens))
            ends: dict[float, list[str]] = {}
            for token, end in until.items():
                ends.setdefault(end, []).append(token.hex())
            for end, renewed in ends.items():
                self._room.renewed(renewed, end)
            lost = {bytes.fromhex(t) for t in tokens} - until.keys()
            self._room.lost(token.hex() for token in lost)
            self._room_changed = True

    def _give_back(self, messages: Sequence[Held]) -> None:
        queues: dict[str, list[bytes]] = {}
        for held in messages:
            queues.setdefault(held.queue, []).append(bytes.fromhex(held.token))
        if queues:
            self._write_blocked()  # who may try must be known before the message can be read
        for queue, tokens in queues.items():
            if self._backlog.give_back(queue, tokens):
                self._note("settle", queue, "abandoned", 1, len(tokens), 0, len(tokens))
            else:
                self._doubts.add(queue, self._clock())
            self._warm.add(queue)
            self._room_changed = True

    def _release_all(self) -> None:
        """It is asked to end: what waits is given back, so that whoever comes next has it."""
        everything = self._room.everything()
        if everything or not self._released:
            self._room = WaitingRoom()
            self._give_back(everything)
            self._room_changed, self._saved_at = True, 0.0
        self._released = True
        self.progress["released"] = True

    def _look_for_empty(self, now: float) -> None:
        """For a drain until empty: nothing left at all, locked by whomever or not."""
        if not self._until_empty or self._warm or len(self._room):
            self._empty_since = None
            return
        self._empty_since = self._empty_since or now
        if now - self._empty_since < 1 or now - self._empty_checked < 2:
            return
        self._empty_checked = now
        for queue in self._queues:
            self._note("management", queue, "peek", 1, 0, 0, 1)
            if not self._backlog.is_empty(queue):
                return
        self.progress["empty"] = True

    # -- what the next micro-batch may read

    def plan(self, epoch: int) -> list[Grant]:
        """Grants for the micro-batch after `epoch`; empty when there is nothing to do now."""
        with self._lock:
            now = self._clock()
            self._collect(now)
            self._write_progress()  # a micro-batch has just ended: say what it did
            if not self._state.stopping:
                # Not only at the next tick: what is read now must not pass what has waited.
                self._give_back(self._room.due(now))
            self._warm |= self._bell.rung()
            if epoch != self._searched:
                self._searched = epoch
                self._doubts.find(epoch, now)
            control = self._state.control()
            self._messages = self._messages.limit(control.max_messages_per_second).refill(now)
            self._bytes = self._bytes.limit(control.max_bytes_per_second).refill(now)
            idle = self._state.stopping or control.paused
            silent = idle or not self._listens
            quiet = [q for q in self._queues if q not in self._warm and q not in self._done]
            self.progress["listening"] = not silent
            if self._listening != quiet and not silent:
                self._listening = quiet
                self._write_progress()  # before it listens: whoever comes after a crash must know
            self._bell.listen([] if silent else quiet)
            if idle or self._problem or now < self._room.paused_until():
                return []
            allowed = self._messages.available()
            if self._max_messages is not None:
                left = max(0, self._max_messages - self._read_total)
                allowed = left if allowed is None else min(allowed, left)
                self.progress["drained"] = left == 0
            if self._cautious is not None:
                # Each message that is read for a primary that is still down costs a receive and a
                # settle: one finds out; if it found nothing against it, two more do, and so on.
                allowed = self._cautious if allowed is None else min(allowed, self._cautious)
            # A poll that is under way may hold the oldest message for a moment: not now.
            ready = self._warm - self._done - self._bell.armed()
            wanted = [q for q in self._queues if q in ready and self._may_read(q, now)]
            if len(self._done) == len(self._queues):
                self.progress["drained"] = True
            grants = share(
                wanted,
                per_queue=self._per_queue,
                bytes_per_queue=self._bytes_per_queue,
                messages=allowed,
                size=self._bytes.available(),
                turn=epoch,
            )
            if grants:
                self._cautious = self._cautious and 2 * self._cautious
                self._grants = {epoch + 1: grants}
                self._journal.drop_before(epoch)
                self._write_blocked()
                self.progress["in_flight"] = sum(g.messages for g in grants)
            else:
                self.progress["in_flight"] = 0
            return grants

    def _may_read(self, queue: str, now: float) -> bool:
        if queue not in self._doubts.queues():
            return True
        known = {held.sequence for held in self._room.everything() if held.queue == queue}
        self._counted = True
        return self._doubts.may_read(queue, now, known, self._lock_seconds)

    def grants(self, epoch: int) -> list[Grant]:
        """The grants of a planned epoch; for one that another keeper planned, all queues."""
        with self._lock:
            known = self._grants.get(epoch)
            if known is not None:
                return known
            # A replay: which queues it had is forgotten, so all of them, as any may have a journal.
            self._warm |= set(self._queues)
            return [Grant(q, self._per_queue, self._bytes_per_queue) for q in self._queues]

    # -- files

    def _write_blocked(self) -> None:
        blocked = {
            "blocked": self._room.blocked(),
            "primary_until": self._room.paused_until(),
        }
        if blocked != self._blocked_written:
            self._state.write("waiting.json", blocked)
            self._blocked_written = blocked

    def _save(self, now: float) -> None:
        if self._room_changed and now - self._saved_at >= SAVE_EVERY:
            held = [
                [h.queue, h.token, h.sequence, h.destination, h.locked_until]
                for h in self._room.everything()
            ]
            failed = {d: c for d, c in self._room.reasons().items() if d != EVERYTHING}
            self._state.write("held.json", {"held": held, "failed": failed})
            self._room_changed, self._saved_at = False, now

    def _write_progress(self) -> None:
        waiting_for = dict(self._room.reasons())
        self.progress["waiting"] = len(self._room)
        self.progress["waiting_for"] = waiting_for
        self.progress["suspect"] = sorted(
            {*self._listening, *self._bell.armed(), *self._doubts.queues()}
        )
        self.progress["doubtful"] = sorted(self._warm & set(self._doubts.queues()))
        self.progress["oldest"] = min((o for o in self._oldest.values() if o), default=None)
        self.progress["problem"] = (
            self._problem
            or self._connection_problem()
            or (
                f"primary: {waiting_for[EVERYTHING]}"
                if self._room.paused_until() > self._clock()
                else None
            )
        )
        if self.progress != self._progress_written:
            self._state.write("progress.json", self.progress)
            self._progress_written = {
                **self.progress,
                "dead_lettered": dict(self.progress["dead_lettered"]),
            }
