"""A queue against a simple account of it: nothing lost, nothing twice, everything in order."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pairbus.broker.entities.errors import MessageLockLostError, MessageNotFoundError
from pairbus.broker.entities.messages import Outcome
from pairbus.broker.store.store import Store
from tests.broker.entities.kit import Bench, Host

LOCK = 30_000
MAX_DELIVERIES = 3


@dataclass
class Known:
    """What the account knows of one message."""

    number: int
    body: bytes
    expires: int
    state: str = "ready"  # ready locked deferred locked-deferred gone dead
    count: int = 0
    token: bytes = b""
    until: int = 0
    holder: int = -1


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = self.open_store()
        self.bench = Bench(
            self.store,
            lock_duration=timedelta(milliseconds=LOCK),
            max_delivery_count=MAX_DELIVERIES,
            dead_lettering_on_message_expiration=True,
        )
        self.known: list[Known] = []
        self.sent = 0
        self.open_receivers()

    def open_store(self) -> Store | None:
        return None

    def open_receivers(self) -> None:
        self.hosts = [Host(), Host()]
        self.receivers = [self.bench.ns.receivers.open("q", host) for host in self.hosts]

    @property
    def now(self) -> int:
        return self.bench.clock.now

    def held(self) -> list[Known]:
        return [k for k in self.known if k.state.startswith("locked")]

    # --- what can happen --------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), ttl=st.sampled_from([None, None, 20_000]))
    def send(self, count, ttl):
        bodies = [b"\x00\x53\x75\xa0\x05%05d" % (self.sent + n) for n in range(count)]
        self.bench.send(*bodies, ttl=ttl)
        for body in bodies:
            self.sent += 1
            expires = 1 << 62 if ttl is None else self.now + ttl
            self.known.append(Known(self.sent, body, expires))

    @rule(who=st.integers(0, 1), credit=st.integers(1, 5))
    def receive(self, who, credit):
        host = self.hosts[who]
        self.receivers[who].grant(credit, drain=True)
        got = host.take()
        ready = [k for k in self.known if k.state == "ready"][:credit]
        assert [d.message.bare for d in got] == [k.body for k in ready]
        for delivery, known in zip(got, ready, strict=True):
            assert delivery.message.sequence_number == known.number
            assert delivery.message.delivery_count == known.count
            known.state, known.token = "locked", delivery.lock_token
            known.until, known.holder = self.now + LOCK, who
            assert delivery.locked_until == known.until

    @precondition(lambda self: self.held())
    @rule(data=st.data(), outcome=st.sampled_from(list(Outcome)), over_link=st.booleans())
    def settle(self, data, outcome, over_link):
        known = data.draw(st.sampled_from(self.held()))
        if over_link and known.holder >= 0:
            self.receivers[known.holder].settle(known.token, outcome)
        else:
            assert self.bench.ns.update_disposition("q", [known.token], outcome) == []
        was_deferred = known.state == "locked-deferred"
        if outcome is Outcome.COMPLETE:
            known.state = "gone"
        elif outcome is Outcome.DEAD_LETTER:
            known.state = "dead"
        elif outcome is Outcome.DEFER:
            known.state = "deferred"
            known.count += 1
        else:
            self.requeue(known, counted=outcome is Outcome.ABANDON, deferred=was_deferred)

    @rule(data=st.data())
    def settle_what_is_lost(self, data):
        token = data.draw(st.sampled_from([b"x" * 16, b""]))
        with pytest.raises(MessageLockLostError):
            self.receivers[0].settle(token, Outcome.COMPLETE)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def renew(self, data):
        known = data.draw(st.sampled_from(self.held()))
        assert self.bench.ns.renew_lock("q", [known.token]) == [self.now + LOCK]
        known.until = self.now + LOCK

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def receive_deferred(self, data):
        known = data.draw(st.sampled_from(self.known))
        if known.state == "deferred":
            (delivery,) = self.bench.ns.receivers.take_deferred("q", [known.number])
            assert delivery.message.delivery_count == known.count
            known.state, known.token = "locked-deferred", delivery.lock_token
            known.until, known.holder = self.now + LOCK, -1
        else:
            with pytest.raises(MessageNotFoundError):
                self.bench.ns.receivers.take_deferred("q", [known.number])

    @rule(milliseconds=st.sampled_from([1, 5_000, 19_000, LOCK, 70_000]))
    def pass_time(self, milliseconds):
        self.bench.pass_time(milliseconds)
        for known in self.held():
            if known.until <= self.now:
                self.requeue(known, counted=True, deferred=known.state == "locked-deferred")
        for known in self.known:
            if known.state in ("ready", "deferred") and known.expires <= self.now:
                known.state = "dead"

    def requeue(self, known, *, counted, deferred):
        known.state = "deferred" if deferred else "ready"
        known.count += counted
        if known.expires <= self.now or (counted and known.count >= MAX_DELIVERIES):
            known.state = "dead"

    # --- what must be true ------------------------------------------------------------------------

    @invariant()
    def counts_are_right(self):
        runtime = self.bench.ns.admin.runtime("q")
        alive = [k for k in self.known if k.state not in ("gone", "dead")]
        dead = [k for k in self.known if k.state == "dead"]
        assert runtime.active_message_count == len(alive)
        assert runtime.dead_letter_message_count == len(dead)
        assert runtime.total_message_count == len(alive) + len(dead)
        assert bool(runtime.size_in_bytes) == bool(alive or dead)

    @invariant()
    def everything_is_where_the_account_says(self):
        peeked = self.bench.ns.peek("q", 0, 1000)
        assert [d.message.bare for d in peeked] == [
            k.body for k in self.known if k.state not in ("gone", "dead")
        ]
        dead = self.bench.ns.peek("q/$DeadLetterQueue", 0, 1000)
        assert [d.message.sequence_number for d in dead] == [
            k.number for k in self.known if k.state == "dead"
        ]

    def teardown(self):
        if self.store is not None:
            self.store.close()


class DurableQueueMachine(QueueMachine):
    """The same, in a store, with restarts at any moment."""

    def open_store(self) -> Store | None:
        if not hasattr(self, "directory"):
            self.directory = tempfile.mkdtemp()
        return Store(self.directory)

    @rule(tidy=st.booleans())
    def restart(self, tidy):
        clock = self.bench.clock
        if tidy:
            self.bench.ns.close()
        self.store.close()
        self.store = self.open_store()
        self.bench = Bench(self.store, clock)
        self.bench.pass_time(0)
        self.open_receivers()
        for known in self.held():
            known.state = "deferred" if known.state == "locked-deferred" else "ready"
        for known in self.known:
            if known.state in ("ready", "deferred") and known.expires <= self.now:
                known.state = "dead"
        if not tidy:
            # Numbers that were reserved are passed over; the account follows.
            self.sent = self.bench.ns.catalog.queue_at("q").store.last_number

    def teardown(self):
        super().teardown()
        shutil.rmtree(self.directory)


TestQueue = pytest.mark.slow(QueueMachine.TestCase)
TestQueue.settings = settings(max_examples=25, stateful_step_count=30)
TestDurableQueue = pytest.mark.slow(DurableQueueMachine.TestCase)
TestDurableQueue.settings = settings(max_examples=8, stateful_step_count=25)
