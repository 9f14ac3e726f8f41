"""The runtime of threads and sockets."""

from __future__ import annotations

import logging
import queue
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from random import Random, SystemRandom
from time import monotonic, sleep, time
from typing import TypeVar
from uuid import uuid4

from pairbus.runtime.files import LocalFiles

T = TypeVar("T")
READ_SIZE = 1 << 18
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
logger = logging.getLogger("pairbus.tasks")


class ThreadTask:
    """A daemon thread."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    @property
    def is_done(self) -> bool:
        """It has ended."""
        return not self._thread.is_alive()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False on a timeout, or if called by the thread itself."""
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()


class ThreadCondition:
    """A condition on a lock that is not reentrant."""

    def __init__(self) -> None:
        lock = threading.Lock()
        condition = threading.Condition(lock)
        self._acquire = lock.acquire
        self._release = lock.release
        self._released = _Released(lock)
        self.wait = condition.wait
        self.notify_all = condition.notify_all

    def __enter__(self) -> None:
        self._acquire()

    def __exit__(self, *error: object) -> None:
        self._release()

    def released(self) -> _Released:
        """Release the lock for a `with` block."""
        return self._released


class _Released:
    """A context manager that releases a lock, and acquires it again at the end."""

    def __init__(self, lock: threading.Lock) -> None:
        self._acquire = lock.acquire
        self._release = lock.release

    def __enter__(self) -> None:
        self._release()

    def __exit__(self, *error: object) -> None:
        self._acquire()


class ThreadWorker:
    """A daemon thread that runs one function after the other."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._name = name
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., object], *args: object) -> None:
        """Run the function later; an exception is logged."""
        if self._is_closed:
            raise RuntimeError(f"worker {self._name} is closed")
        self._calls.put(lambda: function(*args))

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Run the function after those submitted before, and wait for it."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                future.set_exception(error)

        self.submit(run)
        return future.result()

    def close(self) -> None:
        """Run the submitted functions, then stop."""
        self._is_closed = True
        self._calls.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                logger.exception("%s failed", self._name)


class SocketStream:
    """A connected TCP or TLS socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._unsent: deque[memoryview] = deque()
        sock.setblocking(False)
        self._fd = sock.fileno()

    @property
    def has_unsent(self) -> bool:
        """Some of the written data has not been passed to the operating system yet."""
        return bool(self._unsent)

    def write(self, data: bytes) -> None:
        """Write as much as the socket accepts now; the rest follows with `flush`."""
        self._unsent.append(memoryview(data))
        self.flush()

    def flush(self) -> None:
        """Write more of the unsent data, without waiting."""
        unsent = self._unsent
        try:
            while unsent:
                # A TLS send that would block is repeated with the same bytes: the view has them.
                view = unsent[0]
                sent = self._socket.send(view)
                if sent == len(view):
                    unsent.popleft()
                else:
                    unsent[0] = view[sent:]
        except _WOULD_BLOCK:
            pass

    def read(self) -> bytes | None:
        """The bytes that have arrived; None if none, `b""` at the end of the stream."""
        try:
            return self._socket.recv(READ_SIZE)
        except _WOULD_BLOCK:
            return None

    def wait(self, timeout: float, *, read: bool = True) -> None:
        """Wait until something can be read (or written, if something is unsent)."""
        mask = (select.POLLIN if read else 0) | (select.POLLOUT if self._unsent else 0)
        if not mask:
            return  # another thread has written the unsent data
        if read and isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        poll = select.poll()
        poll.register(self._fd, mask)
        poll.poll(max(0.0, timeout) * 1000)

    def close(self) -> None:
        """Close without waiting; a thread in `wait` wakes up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the connection is gone already
        self._socket.close()


class ThreadRuntime:
    """Threads and sockets: see `pairbus.runtime.Runtime`."""

    files = LocalFiles()
    random: Random = SystemRandom()  # a forked process must not repeat its parent's numbers

    time = staticmethod(time)
    monotonic = staticmethod(monotonic)
    sleep = staticmethod(sleep)
    uuid4 = staticmethod(uuid4)
    lock = staticmethod(threading.Lock)
    event = staticmethod(threading.Event)
    condition = staticmethod(ThreadCondition)
    worker = staticmethod(ThreadWorker)

    def spawn(self, function: Callable[..., None], *args: object, name: str) -> ThreadTask:
        """Run on a daemon thread; an exception is logged under the name."""

        def run() -> None:
            try:
                function(*args)
            except Exception:
                logger.exception("%s failed", name)

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return ThreadTask(thread)

    def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        """Call the function directly: a thread may block."""
        return function(*args)

    def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, timeout: float
    ) -> SocketStream:
        """Connect, with a TLS handshake if `tls` is given."""
        deadline = monotonic() + timeout
        sock = socket.create_connection((host, port), timeout=max(0.001, timeout))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock.settimeout(max(0.001, deadline - monotonic()))
                sock = tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return SocketStream(sock)
