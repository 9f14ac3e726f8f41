"""A resolver that hangs for one name does not keep others from being looked up."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from time import monotonic

import pytest

from pairbus.pairing.abandoning import AbandonedError
from pairbus.pairing.resolving import aresolve


async def test_a_name_that_hangs_takes_one_thread_and_none_of_the_event_loops(monkeypatch):
    go_on = threading.Event()
    look_up = socket.getaddrinfo

    def hanging(host, *args, **kwargs):
        if host == "primary.example":
            assert go_on.wait(60)
            raise OSError("no such name")
        return look_up("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    waiting = [
        asyncio.create_task(aresolve("primary.example", monotonic() + 0.3)) for _ in range(40)
    ]
    await aresolve("secondary.example", monotonic() + 60)

    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(answer) for answer in answers} == {AbandonedError}
    stuck = [t for t in threading.enumerate() if t.name == "pairbus lookup primary.example"]
    assert len(stuck) == 1
    # The event loop's own executor is free.
    async with asyncio.timeout(5):
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 1)
    go_on.set()
    stuck[0].join(60)
    await aresolve("primary.example", monotonic() + 60)  # a name that does not exist: the SDK's


FORKING = """
import asyncio, os, socket, threading
from time import monotonic
import pairbus.pairing.forking
from pairbus.pairing.resolving import aresolve

has_begun = threading.Event()

def hanging(*args):
    has_begun.set()
    threading.Event().wait()

socket.getaddrinfo = hanging
waiting = aresolve("primary.example", monotonic() + 60)
threading.Thread(target=asyncio.run, args=(waiting,), daemon=True).start()
assert has_begun.wait(60)
child = os.fork()
if child == 0:
    socket.getaddrinfo = lambda *args: []
    asyncio.run(aresolve("primary.example", monotonic() + 10))
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_does_not_wait_for_a_lookup_of_its_parent():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], timeout=60)

    assert done.returncode == 0


@pytest.mark.parametrize("host", ["localhost"])
async def test_a_name_that_resolves_costs_no_more_than_the_lookup(host):
    await aresolve(host, monotonic() + 60)
