"""Deleting many messages by one request: those that nobody has locked."""

from pairbus.broker.entities.messages import IncomingMessage
from tests.broker.entities.kit import Bench, Host


def left(bench: Bench) -> list[bytes | None]:
    return [delivery.message.bare for delivery in bench.ns.peek("q", 0, 100)]


def test_the_oldest_are_deleted_and_locked_ones_stay():
    bench = Bench()
    bench.ns.send("q", [IncomingMessage(b"%d" % n) for n in range(5)])
    bench.ns.receivers.open("q", Host()).grant(1)  # locks the first
    assert bench.ns.delete_messages("q", 2, bench.clock.now + 1) == 2
    assert left(bench) == [b"0", b"3", b"4"]
    assert bench.ns.admin.runtime("q").active_message_count == 3


def test_messages_that_came_later_stay():
    bench = Bench()
    bench.ns.send("q", [IncomingMessage(b"before")])
    bench.clock.now += 1000
    bench.ns.send("q", [IncomingMessage(b"after")])
    assert bench.ns.delete_messages("q", 10, bench.clock.now) == 1
    assert left(bench) == [b"after"]


def test_messages_of_other_sessions_stay():
    bench = Bench(requires_session=True)
    for name in ("a", "b", "a"):
        bench.ns.send("q", [IncomingMessage(name.encode(), session_id=name)])
    assert bench.ns.delete_messages("q", 10, bench.clock.now + 1, session_id="a") == 2
    assert left(bench) == [b"b"]
