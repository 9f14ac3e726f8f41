"""The runtime: clocks, threads, network and files of a component, behind one object.

The bulk client, the syphon, the ledger writer and the broker's store import neither time,
threading, socket, random nor uuid, and open no files. They are given a runtime and use its clocks,
random numbers, background tasks, locks, connections and files. Production code runs on threads and
sockets (`ThreadRuntime`) or on asyncio (`AsyncioRuntime`). A simulation supplies one with virtual
time, seeded random numbers, connections in memory and files that lose unsynced data.

`AsyncRuntime` and `Runtime` have the same methods; those that wait are coroutines in the first.
Code is written once against `AsyncRuntime` in a package `_async`; `tools/gen_unasync.py` writes the
twin against `Runtime`. Three rules make the twin correct:

* Shared state is guarded by a condition: `with condition:`. With threads this takes a lock. In one
  event loop it does nothing, because the code between two awaits is never interrupted.
  So within such a block await only `condition.wait(…)`, or anything under
  `with condition.released():`.
* To exclude others over an await (to open one connection, say), use `async with lock:`.
* A lock is not reentrant: public methods take it, private ones expect it to be held.
"""

from pairbus.runtime._async.protocols import (
    AsyncCondition,
    AsyncEvent,
    AsyncLock,
    AsyncRuntime,
    AsyncStream,
    AsyncTask,
)
from pairbus.runtime._sync.protocols import Condition, Event, Lock, Runtime, Stream, Task
from pairbus.runtime.asyncio_runtime import AsyncioRuntime
from pairbus.runtime.files import LocalFiles
from pairbus.runtime.protocols import AppendFile, FileInfo, Files, Worker
from pairbus.runtime.thread_runtime import ThreadRuntime, ThreadWorker

__all__ = [
    "AppendFile",
    "AsyncCondition",
    "AsyncEvent",
    "AsyncLock",
    "AsyncRuntime",
    "AsyncStream",
    "AsyncTask",
    "AsyncioRuntime",
    "Condition",
    "Event",
    "FileInfo",
    "Files",
    "LocalFiles",
    "Lock",
    "Runtime",
    "Stream",
    "Task",
    "ThreadRuntime",
    "ThreadWorker",
    "Worker",
]
