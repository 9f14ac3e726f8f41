"""Receiving with locks: order, settling, counting, lock loss."""

from __future__ import annotations

from pairbus.broker.entities.messages import Outcome
from tests.broker.entities.kit import Bench


def test_a_message_that_was_sent_is_delivered_locked_and_gone_when_completed():
    bench = Bench()
    bench.send(b"one")
    receiver, host = bench.receiver(credit=5)
    assert host.bodies == [b"one"]
    receiver.settle(host.tokens[0], Outcome.COMPLETE)
    assert bench.ns.runtime("q").total_message_count == 0


def test_credit_that_waits_is_served_when_a_message_comes():
    bench = Bench()
    receiver, host = bench.receiver(credit=2)
    bench.send(b"one", b"two", b"three")
    assert host.bodies == [b"one", b"two"]
    receiver.grant(1)
    assert host.bodies == [b"one", b"two", b"three"]
