"""The pytest fixtures that users get, and the fake clock."""

import pytest

from pairbus.testing import FakeClock, FaultProxy


def test_each_test_gets_a_namespace_of_its_own(servicebus) -> None:
    servicebus.create_queue("q")
    assert servicebus.is_running
    assert servicebus.do(lambda ns: [q.name for q in ns.list_queues()]) == ["q"]


def test_which_is_fresh(servicebus) -> None:
    assert servicebus.do(lambda ns: ns.list_queues()) == []


def test_namespaces_by_name(servicebus_namespace, tmp_path) -> None:
    one = servicebus_namespace("one")
    two = servicebus_namespace("two", data=tmp_path)
    assert (one.name, two.name) == ("one", "two")
    assert one.port != two.port
    assert str(one.port) in one.connection_string


def test_one_for_the_whole_run(servicebus_session) -> None:
    assert servicebus_session.is_running


def test_the_fake_clock_moves_when_told_and_tells_others() -> None:
    clock = FakeClock(1000.0)
    heard = []
    clock.subscribe(lambda: heard.append(clock()))
    assert clock() == 1000.0
    assert clock.advance(5) == 1005.0
    assert heard == [1005.0]
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_a_proxy_may_be_closed_twice() -> None:
    proxy = FaultProxy("127.0.0.1:1").start()
    proxy.close()
    proxy.close()
