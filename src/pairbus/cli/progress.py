"""The progress of a command: a bar on a terminal, one line per step elsewhere.

Commands that use Spark take seconds before their answer, most of them for the start of Java. Both
forms go to the standard error, so that the answer can be piped; with --json there are none.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pairbus.cli.errors import require
from pairbus.cli.output import bar_column, wants_json
from pairbus.extras import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Steps:
    """The steps of a command, shown as they begin.

    Args:
        bar: the bar on the terminal, if there is one.
    """

    def __init__(self, bar: Any | None) -> None:
        self._bar = bar
        self.ledger_bytes: int | None = None  # of the files that the command reads, if known
        self._words = ""

    def begin(self, words: str) -> None:
        """Show the step that begins: "reading the ledger"."""
        self._words = words
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=words, total=None, completed=0)
        elif not wants_json():
            click.echo(f"{words} …", err=True)

    @contextlib.contextmanager
    def spark(
        self, name: str, master: str | None = None, config: Mapping[str, str] | None = None
    ) -> Iterator["SparkSession"]:
        """Yield a Spark session that is stopped at the end; its tasks move the bar."""
        with needs("spark"):
            from pairbus.spark.session import get_session, job_settings
        self.begin(starting_spark(master))
        settings = {**job_settings(self.ledger_bytes), **(config or {})}
        spark = get_session(master, f"pairbus-{name}", settings)
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(spark, done), daemon=True)
        if self._bar is not None:
            watcher.start()
        try:
            yield spark
        finally:
            done.set()
            if self._bar is not None:
                watcher.join(timeout=5)
            spark.stop()

    def _watch(self, spark: "SparkSession", done: threading.Event) -> None:
        """Move the bar by the tasks of the stages that run."""
        assert self._bar is not None
        tracker = spark.sparkContext.statusTracker()
        task = self._bar.task_ids[0]
        while not done.wait(0.3):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            running = [stage for stage in stages if stage is not None]
            if total := sum(stage.numTasks for stage in running):
                finished = sum(stage.numCompletedTasks for stage in running)
                words = f"{self._words}: {finished} of {total} tasks"
                self._bar.update(task, total=total, completed=finished, description=words)


@contextlib.contextmanager
def ledger_steps(locations: Sequence[str], *, bar_wanted: bool = True) -> Iterator[Steps]:
    """Show the steps of a command over ledgers.

    A missing extra or a wrong location is an error of one line before the first step.
    """
    with _bar() if bar_wanted and _is_bar_possible() else contextlib.nullcontext() as bar:
        shown = Steps(bar)
        for module in ("pyarrow", "pyspark"):
            require(module, "spark")
        from pairbus.ledger.schema import TABLES
        from pairbus.reports.ledger_tables import open_ledgers

        stores = open_ledgers(locations)
        shown.ledger_bytes = sum(store.size(table) for store in stores for table in TABLES)
        yield shown


def starting_spark(master: str | None) -> str:
    """Return the words for the start of Spark: on a terminal, with a hint if it could be faster."""
    from pairbus.spark.archive import has_archive
    from pairbus.spark.java import JavaNotFoundError

    words = "starting Java and Spark"
    if not _is_bar_possible() or not (master or "local").startswith("local"):
        return words
    with contextlib.suppress(JavaNotFoundError):  # the start itself reports it
        if not has_archive():
            return "starting Spark (faster after `pairbus spark class-archive`)"
    return words


def _is_bar_possible() -> bool:
    return sys.stderr.isatty() and not wants_json()


@contextlib.contextmanager
def _bar() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), bar_column(20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task("checking the ledger", total=None)
        yield progress
