"""A dry run: browse the backlog, restore it, and count what would go where. Nothing is touched."""

from typing import TYPE_CHECKING, Any

from pairbus.options import SyphonOptions
from pairbus.spark.restore import DELIVER, restore
from pairbus.spark.setup import Setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["dry_run"]

STEP = 65536


def dry_run(options: SyphonOptions, *, spark: "SparkSession | None" = None) -> dict[str, Any]:
    """Say what a drain would send where, dead-letter and why, and the operations it would cost.

    Args:
        options: as for `start_syphon`.
        spark: the session to run on; one of its own if left out.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody calls it that

    from pairbus.spark.controls import StateDir
    from pairbus.spark.monitor import Monitor
    from pairbus.spark.syphon import open_session, prepare_session

    setup = Setup.of(options)
    Monitor(setup, StateDir(setup.checkpoint)).check()
    own = spark is None
    session = spark or open_session(options.master)
    try:
        rows = (
            prepare_session(session)
            .read.format("servicebus")
            .options(**setup.peek_options())
            .load()
        )
        messages = restore(rows, ttl_policy=setup.ttl_policy)
        if setup.transform is not None:
            messages = setup.transform(messages)
        counted = (
            messages.groupBy("destination", "verdict", "reason")
            .agg(
                F.count("*").alias("messages"),
                F.sum("size").alias("bytes"),
                F.sum(F.greatest(F.lit(1), F.ceil(F.col("size") / STEP))).alias("steps"),
            )
            .orderBy("verdict", "destination", "reason")
            .collect()
        )
    finally:
        if own:
            session.stop()
    total = sum(row["messages"] for row in counted)
    receives = sum(int(row["steps"]) for row in counted)
    sends = sum(int(row["steps"]) for row in counted if row["verdict"] == DELIVER)
    return {
        "rows": [
            {name: row[name] for name in ("destination", "verdict", "reason", "messages", "bytes")}
            for row in counted
        ],
        "messages": total,
        "operations": {
            "receive_backlog": receives,
            "send_primary": sends,
            "settle": total,
            "total": receives + sends + total,
        },
    }
