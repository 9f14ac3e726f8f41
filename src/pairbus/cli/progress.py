"""A Spark session for one command, and a progress bar on the terminal while its jobs run."""

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pairbus.cli.errors import ExitCode, UserError
from pairbus.cli.output import wants_json
from pairbus.extras import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_progress(
    name: str,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    *,
    bar_wanted: bool = True,
) -> Iterator["SparkSession"]:
    """Give a session, stopped at the end; on a terminal show the progress of its jobs."""
    with needs("spark"):
        from pairbus.spark.session import SparkUnavailableError, get_session, job_settings
    done = threading.Event()
    show = bar_wanted and sys.stderr.isatty() and not wants_json()
    with _bar(name) if show else contextlib.nullcontext() as bar:
        try:
            spark = get_session(
                master, f"pairbus-{name}", config={**job_settings(), **(config or {})}
            )
        except SparkUnavailableError as exc:
            raise UserError(str(exc), code=ExitCode.MISSING_EXTRA) from exc
        watcher = threading.Thread(target=_watch, args=(spark, bar, done), daemon=True)
        if bar is not None:
            watcher.start()
        try:
            yield spark
        finally:
            done.set()
            if bar is not None:
                watcher.join(timeout=5)
            spark.stop()


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(f"{name}: starting Spark", total=None)
        yield progress


def _watch(spark: "SparkSession", progress: Any, done: threading.Event) -> None:
    """Move the bar by the tasks of the stages that run."""
    tracker = spark.sparkContext.statusTracker()
    task = progress.task_ids[0]
    while not done.wait(0.3):
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        total = sum(stage.numTasks for stage in running)
        finished = sum(stage.numCompletedTasks for stage in running)
        if total:
            words = f"{finished} of {total} tasks"
            progress.update(task, total=total, completed=finished, description=words)
