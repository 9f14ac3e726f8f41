"""What pairbus costs before it does anything: megabytes per extra, import and start times.

Sizes are those of the files that the installed distributions list, without compiled files: an
extra with all its dependencies, pairbus and the SDK included. Times are the best of several fresh
processes.
"""

import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

import pairbus

RUNS = 5
IMPORTS = ("pairbus", "pairbus.aio", "pairbus.broker", "pairbus.testing")
TIMED = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
START = """
import time
from pairbus import broker
start = time.perf_counter()
with broker.run():
    print(time.perf_counter() - start)
"""


def run():
    extras = sorted(set(distribution("pairbus").metadata.get_all("Provides-Extra") or ()))
    for extra in ["", *extras]:
        name = f"install_{extra or 'bare'}"
        try:
            yield f"{name} {installed_size(extra) / 1e6:.0f} MB"
        except PackageNotFoundError as missing:
            yield f"{name} left out: {missing.name} is not installed"
    for module in IMPORTS:
        seconds = best(TIMED.format(f"import {module}"))
        yield f"import_{module.replace('.', '_')} {seconds * 1000:.0f} ms"
    yield f"broker_start {best(START) * 1000:.0f} ms"


def best(code):
    """The least seconds that a fresh process printed."""
    command = [sys.executable, "-c", code]
    return min(float(subprocess.check_output(command, text=True)) for _ in range(RUNS))


def installed_size(extra):
    """Bytes of pairbus with an extra, and of everything that they require."""
    sizes, todo = {}, [("pairbus", extra)]
    seen = set(todo)
    while todo:
        name, extra = todo.pop()
        found = distribution(name)
        sizes[found.metadata["Name"]] = own_size(name, found)
        for text in found.requires or ():
            required = Requirement(text)
            marker = required.marker
            if marker is not None and not marker.evaluate({"extra": extra}):
                continue
            wanted = {(required.name, more) for more in {"", *required.extras}} - seen
            seen |= wanted
            todo += wanted
    return sum(sizes.values())


def own_size(name, found: Distribution):
    if name == "pairbus":  # may be installed as a link to its sources
        files = Path(pairbus.__file__).parent.rglob("*")
    else:
        files = (Path(str(file.locate())) for file in found.files or ())
    return sum(
        file.stat().st_size for file in files if file.is_file() and "__pycache__" not in file.parts
    )
