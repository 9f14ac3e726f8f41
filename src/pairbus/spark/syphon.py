"""The syphon: backlog → restore → deliver, as a Structured Streaming query.

`start_syphon` is the one way in: the command line, `enable_syphon` and the demo all use it.
"""

import contextlib
import logging
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from pairbus.exceptions import SyphonError
from pairbus.options import SyphonOptions
from pairbus.spark.restore import restore
from pairbus.spark.setup import Bounds, Setup
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.journal import Journal
from pairbus.syphon.monitor import Monitor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Bounds", "SyphonHandle", "SyphonOptions", "backlog", "deliver", "start_syphon"]

log = logging.getLogger("pairbus.syphon")

ARROW_ROWS = 2000
RESTARTS = 5  # of a query that fails again and again without progress


def start_syphon(
    options: SyphonOptions,
    *,
    spark: "SparkSession | None" = None,
    bounds: Bounds | None = None,
) -> "SyphonHandle":
    """Bring the backlog home, until it is stopped or its bounds are reached.

    Args:
        options: the two namespaces, the place of checkpoint and ledger, limits.
        spark: the session to run on; one of its own, on `options.master`, if left out.
        bounds: when it ends by itself; never, if left out.

    Raises:
        SyphonError: what is wrong, in one line.
        SparkUnavailableError: there is no Spark or no Java.
    """
    bounds = bounds or Bounds()
    setup = Setup.of(options)
    state = StateDir(setup.checkpoint).create()
    state.begin()
    for name in ("max_messages_per_second", "max_bytes_per_second"):
        if getattr(options, name) is not None:
            state.change_controls(**{name: getattr(options, name)})
    monitor = Monitor(setup, state)
    monitor.check()  # a wrong key or a missing namespace is told before Spark is started
    session, own = (spark, False) if spark is not None else (open_session(options.master), True)
    session = prepare_session(session)
    rows = backlog(session, setup, bounds)
    messages = restore(rows, ttl_policy=setup.ttl_policy, keep_original=setup.transform is not None)
    if setup.transform is not None:
        messages = setup.transform(messages)
    return SyphonHandle(setup, state, monitor, messages, bounds, session if own else None)


def backlog(session: "SparkSession", setup: Setup, bounds: Bounds) -> "DataFrame":
    """All backlog queues of the pair, as one stream of locked messages."""
    options = setup.source_options(
        bounds, partitions=session.sparkContext.defaultParallelism, now=time.time()
    )
    return session.readStream.format("servicebus").options(**options).load()


def deliver(messages: "DataFrame", setup: Setup) -> "StreamingQuery":
    """Send to the destinations, write receipts, settle: for ever, one micro-batch after another."""
    _activate(messages.sparkSession)
    return (
        messages.writeStream.format("servicebus")
        .options(**setup.sink_options())
        .option("checkpointLocation", str(setup.checkpoint / "spark"))
        .queryName(setup.client_id)
        .trigger(processingTime="500 milliseconds")
        .outputMode("append")
        .start()
    )


def open_session(master: str | None) -> "SparkSession":
    """A Spark session of our own, on this master."""
    from pairbus.spark.session import get_session

    master = master or "local[*]"
    _check_master(master)
    if master.startswith("local[") and "," not in master:
        master = master[:-1] + ",4]"  # a task that dies is tried again, as on a cluster
    elif master == "local":
        master = "local[1,4]"
    try:
        return get_session(
            master=master, app_name="pairbus syphon", config={"spark.speculation": "false"}
        )
    except Exception as exc:
        if type(exc).__name__ in ("SparkUnavailableError", "SyphonError"):
            raise
        raise SyphonError(f"Spark at {master} cannot be reached: {_first_line(exc)}") from exc


def _check_master(master: str) -> None:
    """Spark tries for a minute and a half to reach a master that is not there; we ask first."""
    match = re.match(r"spark://([^:,/]+):(\d+)", master)
    if match:
        try:
            socket.create_connection((match[1], int(match[2])), timeout=5).close()
        except OSError as exc:
            raise SyphonError(f"Spark at {master} cannot be reached: {exc.strerror}") from None


def _first_line(exc: BaseException) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0][:300]


def prepare_session(session: "SparkSession") -> "SparkSession":
    """A session of our own on the same Spark, so that our settings disturb nobody."""
    from pairbus.spark.source import ServiceBusSource

    _activate(session)
    own = session.newSession()
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.dataSource.register(ServiceBusSource)
    return own


def _activate(session: "SparkSession") -> None:
    """Make a session the active one of this thread, if none is.

    On a thread that did not make the session none is active, and `writeStream` finds Python data
    sources through the active session only. Making a DataFrame makes it so.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        session.createDataFrame([], "nothing int")


class SyphonHandle:
    """A running syphon."""

    def __init__(
        self,
        setup: Setup,
        state: StateDir,
        monitor: Monitor,
        messages: "DataFrame",
        bounds: Bounds,
        session: "SparkSession | None",
    ) -> None:
        self._setup = setup
        self._state = state
        self._monitor = monitor
        self._messages = messages
        self._query = deliver(messages, setup)
        self._bounds = bounds
        self._session = session
        self._started, self._began = time.monotonic(), time.time()
        self._journal = Journal(state.path)
        self._failures = 0  # one after the other, without progress
        self._forwarded = 0
        self._ended = threading.Event()
        self._stop_asked = threading.Event()
        self.error: SyphonError | None = None
        self._thread = threading.Thread(target=self._watch, name="pairbus-syphon", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<SyphonHandle {self._setup.primary_name} {self.status()['state']}>"

    @property
    def checkpoint(self) -> str:
        """Where checkpoint, controls and status are."""
        return str(self._setup.checkpoint)

    def status(self) -> dict[str, Any]:
        """How it stands, by progress."""
        return self._monitor.status(active=self._active(), stopped=self._ended.is_set())

    def pause(self) -> None:
        """Read nothing more; what is in flight is finished. It survives a restart."""
        self._state.change_controls(paused=True)

    def resume(self) -> None:
        """Go on."""
        self._state.change_controls(paused=False)

    def limit(
        self,
        *,
        max_messages_per_second: float | None = None,
        max_bytes_per_second: float | None = None,
    ) -> None:
        """Limit the rate; None takes a limit away. It survives a restart."""
        self._state.change_controls(
            max_messages_per_second=max_messages_per_second,
            max_bytes_per_second=max_bytes_per_second,
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ended: by its bounds, by `stop`, or by a failure, which is raised."""
        ended = self._ended.wait(timeout)
        if ended and self.error is not None:
            raise self.error
        return ended

    def wait_until_empty(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left in the backlog queues, and nothing is in flight."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(0.2):
            if self._idle() and self._monitor.is_empty():
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False
        if self.error is not None:
            raise self.error
        return self._monitor.is_empty()

    def stop(self, timeout: float = 30.0) -> None:
        """Finish what is in flight, settle it, and end. Twice is fine."""
        self._stop_asked.set()
        self._ended.wait(timeout + 10)
        self._thread.join(timeout=5)

    # -- the watching thread

    def _active(self) -> bool:
        try:
            status = self._query.status
        except Exception:  # noqa: BLE001 - Spark is going down: then it is not active
            return False
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    def _idle(self) -> bool:
        progress = self._state.read("progress.json")
        return not self._active() and not progress.get("waiting") and not self._reports_wait()

    def _reports_wait(self) -> bool:
        return any(True for _ in self._state.reports())

    def _watch(self) -> None:
        try:
            while not self._stop_asked.wait(0.25):
                if not self._query.isActive and not self._again():
                    return
                self._monitor.tick(active=self._active())
                if self._reached():
                    break
            self._finish()
        except Exception as exc:  # noqa: BLE001 - told to whoever waits
            gone = "Py4J" in type(exc).__name__ or isinstance(exc, OSError)
            self.error = SyphonError("Spark's Java process is gone" if gone else _first_line(exc))
        finally:
            with contextlib.suppress(Exception):
                self._monitor.close()
            with contextlib.suppress(Exception):  # a Java process that is gone cannot be stopped
                self._end_session()
            self._ended.set()

    def _reached(self) -> bool:
        """Whether the bounds are reached."""
        bounds = self._bounds
        if not bounds.bounded:
            return False
        elapsed = time.monotonic() - self._started
        if bounds.max_duration is not None and elapsed >= bounds.max_duration:
            return True
        progress = self._state.read("progress.json")
        if bounds.until_empty and progress.get("empty"):
            return True
        return bool(progress.get("drained")) and self._idle()

    def _finish(self) -> None:
        """Ask everybody to finish, wait for them, and end the query."""
        self._state.ask_to_stop()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._query.isActive:
            if not self._journal.anything_since(self._began):
                break  # it has read nothing yet, so there is nothing to finish
            released = self._state.read("progress.json").get("released")
            if released and not self._active() and not self._reports_wait():
                break
            time.sleep(0.1)
        self._query.stop()

    def _again(self) -> bool:
        """Start a query that failed once more; False if it is stopped, or fails without progress.

        Spark gives a query up after a few failures of one task, or when one of its processes is
        slow to start: a reason to try again from the checkpoint, not to leave the backlog there.
        """
        exc = self._query.exception()
        if exc is None:
            return False
        forwarded = self._state.read("progress.json").get("forwarded", 0)
        self._failures = self._failures + 1 if forwarded == self._forwarded else 1
        self._forwarded = forwarded
        if self._failures > RESTARTS:
            self.error = SyphonError(f"the query ended: {_cause(exc)}")
            return False
        wait = 2.0 ** (self._failures - 1)
        log.warning("the query ended, and starts again in %g s: %s", wait, _cause(exc))
        if self._stop_asked.wait(wait):
            return False
        self._query = deliver(self._messages, self._setup)
        return True

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.stop()


def _cause(exc: Any) -> str:
    """The line of a Spark error that says what happened."""
    text = str(getattr(exc, "desc", None) or exc)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error: " in line and not line.startswith(("at ", "Caused by", "org.", "===")):
            return line[:300]
    return lines[0][:300] if lines else type(exc).__name__
