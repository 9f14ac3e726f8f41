"""The connections of a process: one for each role, made without waiting for each other."""

import threading

import pytest

from pairbus.client import SasKey
from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.connections import ConnectionPool
from pairbus.syphon.target import Target

asked, answer = threading.Semaphore(0), threading.Event()


def slow_credential():
    asked.release()
    assert answer.wait(10)
    return SasKey("name", "key")


def quick_credential():
    return SasKey("name", "key")


SLOW = Target(host="contoso-dr", credential=f"{__name__}:slow_credential")
QUICK = Target(host="contoso-dr", credential=f"{__name__}:quick_credential")


@pytest.fixture
def pool():
    answer.clear()
    yield ConnectionPool(ThreadRuntime())
    answer.set()


class Caller(threading.Thread):
    """Gets a connection in the background."""

    def __init__(self, pool, target):
        super().__init__(daemon=True)
        self._get, self.found = lambda: pool.get(target, "reader", 5.0), None
        self.start()

    def run(self):
        self.found = self._get()

    def result(self):
        self.join(10)
        return self.found


def test_a_slow_credential_factory_does_not_delay_other_connections(pool):
    slow = Caller(pool, SLOW)
    assert asked.acquire(timeout=10)
    assert Caller(pool, QUICK).result() is not None
    answer.set()
    assert slow.result() is not None


def test_callers_that_make_a_connection_at_the_same_time_get_the_same(pool):
    callers = [Caller(pool, SLOW), Caller(pool, SLOW)]
    for _ in callers:
        assert asked.acquire(timeout=10)
    answer.set()
    first, second = (caller.result() for caller in callers)
    assert first is second is pool.get(SLOW, "reader", 5.0)
