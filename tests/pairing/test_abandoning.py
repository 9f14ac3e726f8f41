"""Calls that may be abandoned: what they keep alive."""

import gc
import threading
import types
import weakref

import pytest

from pairbus.pairing import abandoning
from pairbus.pairing.abandoning import abandonable


class Held:
    """Something that the application has in a variable."""


def test_thread_that_has_raised_keeps_no_variable_of_the_caller_alive(monkeypatch):
    may_end = threading.Event()

    class Lingering:
        """A lock that keeps its thread alive after the caller was woken."""

        def __enter__(self):
            pass

        def __exit__(self, *_error):
            may_end.wait(10)

    slow = types.SimpleNamespace(Thread=threading.Thread, Event=threading.Event, Lock=Lingering)
    monkeypatch.setattr(abandoning, "threading", slow)
    held = []

    def fail():
        raise ValueError("refused")

    def call():
        local = Held()
        held.append(weakref.ref(local))
        with pytest.raises(ValueError, match="refused"):
            abandonable(10, fail, what="a call")

    try:
        call()
        gc.collect()
        assert held[0]() is None
    finally:
        may_end.set()
