"""A queue with sessions against a simple account of it: one holder each, in order, nothing lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pairbus.broker.entities.errors import (
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from pairbus.broker.entities.messages import Outcome
from pairbus.broker.entities.receiver import Receiver
from tests.broker.entities.kit import Bench, Host

LOCK = 30_000
MAX_DELIVERIES = 3
NAMES = ["a", "b", "c"]


@dataclass
class Known:
    number: int
    session: str
    state: str = "ready"  # ready locked deferred gone dead
    count: int = 0
    token: bytes = b""


@dataclass
class Holding:
    session: str
    receiver: Receiver
    host: Host
    until: int


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(
            requires_session=True,
            lock_duration=timedelta(milliseconds=LOCK),
            max_delivery_count=MAX_DELIVERIES,
        )
        self.known: list[Known] = []
        self.holding: dict[str, Holding] = {}

    @property
    def now(self) -> int:
        return self.bench.clock.now

    def of(self, session: str, state: str) -> list[Known]:
        return [k for k in self.known if k.session == session and k.state == state]

    def requeue(self, session: str, *, counted: bool) -> None:
        for known in self.of(session, "locked"):
            known.state = "ready"
            known.count += counted
            if counted and known.count >= MAX_DELIVERIES:
                known.state = "dead"

    # --- what can happen --------------------------------------------------------------------------

    @rule(session=st.sampled_from(NAMES), count=st.integers(1, 3))
    def send(self, session, count):
        body = b"\x00\x53\x75\xa0\x01x"
        self.bench.send(*[body] * count, session_id=session)
        for _ in range(count):
            self.known.append(Known(len(self.known) + 1, session))

    @rule(session=st.sampled_from(NAMES))
    def accept(self, session):
        host = Host()
        if session in self.holding:
            with pytest.raises(SessionCannotBeLockedError):
                self.bench.ns.receivers.open("q", host, session_id=session)
        else:
            receiver = self.bench.ns.receivers.open("q", host, session_id=session)
            self.hold(session, receiver, host)

    @rule()
    def accept_next(self):
        host = Host()
        accepted: list[Receiver] = []
        pending = self.bench.ns.receivers.accept_next("q", host, accepted.append)
        free = {n for n in NAMES if n not in self.holding and self.of(n, "ready")}
        assert bool(accepted) == bool(free)
        if accepted:
            session = accepted[0].session.session_id
            assert session in free
            self.hold(session, accepted[0], host)
        else:
            pending.cancel()

    def hold(self, session, receiver, host):
        self.holding[session] = Holding(session, receiver, host, self.now + LOCK)
        assert receiver.session.session_id == session
        assert receiver.session.locked_until == self.now + LOCK

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), credit=st.integers(1, 4))
    def receive(self, data, credit):
        holding = self.holding[data.draw(st.sampled_from(sorted(self.holding)))]
        holding.receiver.grant(credit, drain=True)
        got = holding.host.take()
        ready = self.of(holding.session, "ready")[:credit]
        assert [d.message.sequence_number for d in got] == [k.number for k in ready]
        for delivery, known in zip(got, ready, strict=True):
            assert delivery.message.delivery_count == known.count
            assert delivery.locked_until == holding.until
            known.state, known.token = "locked", delivery.lock_token

    @precondition(lambda self: any(k.state == "locked" for k in self.known))
    @rule(data=st.data(), outcome=st.sampled_from(list(Outcome)))
    def settle(self, data, outcome):
        known = data.draw(st.sampled_from([k for k in self.known if k.state == "locked"]))
        self.holding[known.session].receiver.settle(known.token, outcome)
        if outcome is Outcome.COMPLETE:
            known.state = "gone"
        elif outcome is Outcome.DEAD_LETTER:
            known.state = "dead"
        elif outcome is Outcome.DEFER:
            known.state = "deferred"
            known.count += 1
        else:
            known.state = "ready"
            known.count += outcome is Outcome.ABANDON
            if outcome is Outcome.ABANDON and known.count >= MAX_DELIVERIES:
                known.state = "dead"

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def close(self, data):
        session = data.draw(st.sampled_from(sorted(self.holding)))
        self.holding.pop(session).receiver.close()
        self.requeue(session, counted=False)

    @rule(session=st.sampled_from(NAMES))
    def renew(self, session):
        if session in self.holding:
            until = self.bench.ns.receivers.renew_session("q", session)
            assert until == self.now + LOCK
            self.holding[session].until = until
        else:
            with pytest.raises(SessionLockLostError):
                self.bench.ns.receivers.renew_session("q", session)

    @rule(milliseconds=st.sampled_from([1, 10_000, LOCK]))
    def pass_time(self, milliseconds):
        self.bench.pass_time(milliseconds)
        for session, holding in list(self.holding.items()):
            if holding.until <= self.now:
                assert isinstance(holding.host.error, SessionLockLostError)
                del self.holding[session]
                self.requeue(session, counted=True)
            else:
                assert holding.host.error is None

    # --- what must be true ------------------------------------------------------------------------

    @invariant()
    def counts_and_places_are_right(self):
        alive = [k for k in self.known if k.state not in ("gone", "dead")]
        dead = [k for k in self.known if k.state == "dead"]
        runtime = self.bench.ns.admin.runtime("q")
        assert runtime.active_message_count == len(alive)
        assert runtime.dead_letter_message_count == len(dead)
        peeked = self.bench.ns.peek("q", 0, 1000)
        assert [d.message.sequence_number for d in peeked] == [k.number for k in alive]
        assert set(self.bench.ns.receivers.list_sessions("q")) == {k.session for k in alive}

    @invariant()
    def nothing_is_kept_of_sessions_that_are_over(self):
        queue = self.bench.ns.catalog.queue_at("q")
        alive = {k.session for k in self.known if k.state not in ("gone", "dead")}
        assert set(queue.store.sessions) == alive | set(self.holding)
        assert {s.session_id for s in (r.session for r in queue.receivers)} == set(self.holding)
        assert len(queue.locks) == sum(k.state == "locked" for k in self.known)


TestSessions = pytest.mark.slow(SessionMachine.TestCase)
TestSessions.settings = settings(max_examples=25, stateful_step_count=30)
