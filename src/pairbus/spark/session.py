"""A Spark session that starts anywhere, and is quiet about it."""

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


class SparkUnavailableError(Exception):
    """Spark cannot run here: one line that says what to install."""


def get_session(
    master: str | None = None,
    app_name: str = "pairbus",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, started if there is none.

    Args:
        master: where to run; `local[*]` unless it is given here or by `spark.master`.
        app_name: the name that Spark's own pages show.
        config: Spark settings, which take precedence over those of pairbus.

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

    A task sums up what it reads in a small table that is many times as quick as the large one it
    falls back on; a ledger packs so well that Spark's usual 128 MB hold far too many rows for it.

    The jobs read pages of a megabyte, which Java's usual collector handles as giants, one at a
    time: with the parallel one a reconciliation takes half as long on two cores. Java refuses two
    collectors, so one that the environment names stays.

    Over a small ledger nearly all code runs once or twice, so Java compiles it quickly and not
    well, and Spark plans a query once, instead of again after each of its stages.

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
        SparkUnavailableError: there is no Java, and nothing that would bring one.
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
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A Python process of Spark's that takes longer to start fails the query; on a busy machine
        # the usual 15 seconds are not always enough.
        "spark.python.authenticate.socketTimeout": "120s",
        # A ledger is many small files: look at them from the driver, not by a task each, and
        # read many in one task.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.sql.files.openCostInBytes": "131072",
        # The small hash map before the large one loses time where most groups are in neither: the
        # jobs group by strings, into hundreds of thousands.
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    }
    if master.startswith("local"):
        values["spark.ui.enabled"] = "false"
        values["spark.driver.host"] = "127.0.0.1"
        values["spark.sql.shuffle.partitions"] = "8"
    return values
