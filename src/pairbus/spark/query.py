"""The syphon's query: backlog → restore → transform → deliver, on a session of its own."""

import re
import socket
import time
from typing import TYPE_CHECKING

from pairbus.exceptions import SyphonError
from pairbus.spark.query_options import sink_options, source_options
from pairbus.syphon.object_files import is_url
from pairbus.syphon.setup import Bounds, Setup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["backlog", "deliver", "first_line", "open_session", "prepare_session"]

ARROW_ROWS = 2000
TRIGGER, REMOTE_TRIGGER = 200, 500  # milliseconds; in an object store each read is a request
ARROW_ROWS_PACED = 100  # at a limited rate messages are sent soon after they were read


def backlog(session: "SparkSession", setup: Setup, bounds: Bounds) -> "DataFrame":
    """Return all backlog queues of the pair as one stream of locked messages."""
    partitions = session.sparkContext.defaultParallelism
    options = source_options(setup, bounds, partitions=partitions, now=time.time())
    return session.readStream.format("servicebus").options(**options).load()


def deliver(messages: "DataFrame", setup: Setup) -> "StreamingQuery":
    """Start the query that sends to the destinations, writes receipts and settles."""
    _activate(messages.sparkSession)
    trigger = REMOTE_TRIGGER if is_url(setup.state) else TRIGGER
    return (
        messages.writeStream.format("servicebus")
        .options(**sink_options(setup))
        .option("checkpointLocation", str(setup.checkpoint / "spark"))
        .queryName(setup.client_id)
        .trigger(processingTime=f"{trigger} milliseconds")
        .outputMode("append")
        .start()
    )


def open_session(master: str | None) -> "SparkSession":
    """Start a Spark session on this master."""
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
        raise SyphonError(f"Spark at {master} cannot be reached: {first_line(exc)}") from exc


def _check_master(master: str) -> None:
    """Fail early: Spark would try to reach a missing master for a minute and a half."""
    match = re.match(r"spark://([^:,/]+):(\d+)", master)
    if match:
        try:
            socket.create_connection((match[1], int(match[2])), timeout=5).close()
        except OSError as exc:
            raise SyphonError(f"Spark at {master} cannot be reached: {exc.strerror}") from None


def first_line(exc: BaseException) -> str:
    """Return the first line of an error, without Java's stack."""
    return (str(exc).splitlines() or [type(exc).__name__])[0][:300]


def prepare_session(session: "SparkSession", *, is_paced: bool = False) -> "SparkSession":
    """Return a new session on the same Spark, so that our settings affect no other session.

    Args:
        session: any session.
        is_paced: the namespaces have a ceiling, so messages are read in small batches.
    """
    from pairbus.spark.source import ServiceBusSource

    _activate(session)
    own = session.newSession()
    rows = ARROW_ROWS_PACED if is_paced else ARROW_ROWS
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.dataSource.register(ServiceBusSource)
    return own


def _activate(session: "SparkSession") -> None:
    """Make a session the active one of this thread, if none is.

    On a thread that did not create the session none is active, and `writeStream` finds Python data
    sources only through the active session. Creating a DataFrame activates its session.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        session.createDataFrame([], "nothing int")
