"""A syphon for the drill: on Spark, or in this process with the same reader and deliverer.

The drill prefers a syphon that is running already. It starts one of its own, with a state directory
of its own, only when the backlog held nothing else before.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pairbus.envelope.fields import NO_DESTINATION, WRONG_ALIAS_TYPE
from pairbus.exceptions import SyphonError
from pairbus.extras import is_installed
from pairbus.monitoring.endpoints import Pair
from pairbus.options import SyphonOptions
from pairbus.spark.driver import open_coordinator
from pairbus.spark.executor import connections, open_deliverer, open_reader
from pairbus.spark.options import parse
from pairbus.spark.query_options import sink_options, source_options
from pairbus.syphon.columns import select
from pairbus.syphon.rows import RowMaker
from pairbus.syphon.setup import Bounds, Setup
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.verdicts import DEAD_LETTER, DELIVER

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.spark.handle import SyphonHandle

IDLE = 0.1  # seconds between plans without work


def available() -> str | None:
    """Return the kind of syphon that can be started here: `spark`, `here` or None."""
    if not is_installed("pyarrow"):
        return None
    return "spark" if is_installed("pyspark") else "here"


@contextlib.contextmanager
def syphon(pair: Pair, kind: str) -> Iterator[None]:
    """Run a syphon of the given kind in this block."""
    with tempfile.TemporaryDirectory(prefix="pairbus-drill-", ignore_cleanup_errors=True) as folder:
        options = pair.syphon_options(checkpoint=folder, long_poll=5.0)
        handle = _start_on_spark(options) if kind == "spark" else LocalSyphon(options)
        try:
            yield
        finally:
            handle.stop()


def _start_on_spark(options: SyphonOptions) -> SyphonHandle:
    from pairbus.spark.session import SparkUnavailableError
    from pairbus.spark.syphon import start_syphon

    try:
        return start_syphon(options)
    except SparkUnavailableError as exc:
        raise SyphonError(str(exc)) from exc


class LocalSyphon:
    """The syphon's coordinator, reader and deliverer on one thread, without Spark."""

    def __init__(self, options: SyphonOptions) -> None:
        setup = Setup.of(options)
        wanted = source_options(setup, Bounds(), partitions=1, now=time.time())
        self._source = parse(wanted, "read")
        self._sink = parse(sink_options(setup), "write")
        self._maker = RowMaker(select(self._source["columns"], aliases=True))
        self._state = StateDirectory(setup.state).create()
        self._state.begin_run()
        self._coordinator = open_coordinator(self._source)
        self._coordinator.start()
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="pairbus-drill-syphon", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the current micro-batch and return locked messages.

        Raises:
            SyphonError: it failed.
        """
        self._stop.set()
        self._thread.join(60)
        self._state.ask_to_stop()
        self._coordinator.tick()
        self._coordinator.close()
        for target, role in (
            (self._source.target, "reader"),
            (self._source.target, "coordinator"),
            (self._source.target, "doorbell"),
            (self._sink.target, "writer"),
            (self._sink.settle_target or self._sink.target, "settler"),
        ):
            connections(target, role).drop()
        if self.error is not None:
            raise SyphonError(f"the syphon of the drill failed: {self.error}") from self.error

    def _work(self) -> None:
        epoch = 0
        try:
            while not self._stop.is_set():
                if self._coordinator.plan(epoch):
                    epoch += 1
                    self._run_batch(epoch)
                else:
                    self._stop.wait(IDLE)
        except Exception as exc:  # noqa: BLE001 - raised by `stop`
            self.error = exc

    def _run_batch(self, epoch: int) -> None:
        reader = open_reader(self._source, is_stream=True)
        deliverer = open_deliverer(self._sink)
        pace = self._coordinator.pace(1)
        for batch in reader.read(epoch, self._coordinator.grants(epoch), pace):
            rows = self._maker.batch_of(
                batch.queue, batch.received_at, batch.messages, batch.opened
            )
            deliverer.deliver(restore(rows))
        deliverer.finish()


def restore(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Restore the values of the aliases, as `pairbus.spark.restore` does for a DataFrame."""
    import pyarrow as pa

    paths = [(path or "").strip() for path in rows.column("aliasPath").to_pylist()]
    problems = rows.column("aliasProblem").to_pylist()
    reasons = [
        WRONG_ALIAS_TYPE if problem is not None else None if path else NO_DESTINATION
        for path, problem in zip(paths, problems, strict=True)
    ]
    columns: dict[str, Any] = {
        name: rows.column(name) for name in rows.schema.names if not name.startswith("alias")
    }
    columns |= {
        "destination": pa.array(paths),
        "verdict": pa.array([DEAD_LETTER if reason else DELIVER for reason in reasons]),
        "reason": pa.array(reasons, pa.string()),
        "description": pa.array(problems, pa.string()),
        "sessionId": rows.column("aliasSessionId"),
        "timeToLive": rows.column("aliasTimeToLive"),
        "scheduledEnqueueTime": rows.column("aliasScheduledEnqueueTime"),
    }
    return pa.RecordBatch.from_pydict(columns)
