"""`pairbus spark`: the job script, the bundle for executors, JAVA_HOME, and a faster start."""

from pathlib import Path

import click

from pairbus.cli.errors import fail, require
from pairbus.cli.output import say


@click.group("spark")
def command() -> None:
    """Prepare jobs for spark-submit.

    \b
    Example:
      spark-submit --master spark://master:7077 --py-files pairbus.zip \\
        $(pairbus spark job-path) syphon --until-empty
    """


@command.command("job-path", short_help="Print the path of the script for spark-submit.")
def job_path() -> None:
    """Print the path of the script for spark-submit.

    Its arguments are `syphon`, `cost` or `reconcile`, and then the options of `pairbus syphon run`,
    `pairbus cost report` or `pairbus reconcile`.

    \b
    Example:
      spark-submit $(pairbus spark job-path) reconcile ./ledger
    """
    from pairbus.cli import spark_job

    click.echo(str(Path(spark_job.__file__).resolve()))


@command.command("bundle", short_help="Write the .zip that executors need.")
@click.argument("file", default="pairbus.zip", type=click.Path(dir_okay=False, path_type=Path))
def bundle(file: Path) -> None:
    """Write the .zip that executors need, for `spark-submit --py-files`.

    Workers then need pyspark and pyarrow, and nothing else. Use the bundle of the version that the
    driver runs.

    \b
    Example:
      pairbus spark bundle pairbus.zip
    """
    from pairbus.spark.submitted import write_bundle

    try:
        size = write_bundle(file)
    except OSError as exc:
        fail(f"{file} cannot be written: {exc.strerror}")
    say(f"{file}: {size:,} bytes")


@command.command("java-home", short_help="Print the JAVA_HOME that Spark needs on this machine.")
def java_home() -> None:
    """Print the JAVA_HOME that Spark needs on this machine.

    It is the system's Java, if it is 17 or newer, or else the one that the extra `spark` installs.
    That one lacks a module that Spark loads, so pairbus prepares a directory that works.

    \b
    Example:
      export JAVA_HOME=$(pairbus spark java-home)
    """
    require("pyspark", "spark")
    from pairbus.spark.java import ensure_java

    click.echo(ensure_java())


@command.command(
    "class-archive", short_help="Write an archive of classes, so that Spark starts faster."
)
def class_archive() -> None:
    """Write an archive of Spark's classes, so that Spark starts in about 60 % of the time.

    All commands of this environment that start Spark use it. It takes about 200 MB and a minute to
    write. Java ignores it after an upgrade of Java or Spark: run this command again then. To undo
    it, delete the file.

    \b
    Example:
      pairbus spark class-archive
    """
    require("pyspark", "spark")
    from pairbus.spark.archive import create_archive

    say("starting Spark, and storing its classes …")
    path = create_archive()
    say(f"{path}: {path.stat().st_size >> 20} MB")
