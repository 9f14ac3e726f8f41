"""A broker process of the soak: one namespace on disk, with a clock that a file can put wrong."""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path

from pairbus import broker


class OffsetClock:
    """The time of this machine plus the seconds in a file, which is read once in a while."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0.0
        self._read_at = 0.0

    def __call__(self) -> float:
        """Return the time."""
        now = time.monotonic()
        if now - self._read_at > 0.2:
            self._read_at = now
            try:
                self._offset = float(self._path.read_text() or 0)
            except (OSError, ValueError):
                self._offset = 0.0
        return time.time() + self._offset


def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("namespace")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--entities", type=Path)
    given = parser.parse_args()
    with broker.run(
        given.namespace,
        port=given.port,
        data=given.folder / "data",
        entities=given.entities,
        clock=OffsetClock(given.folder / "clock"),
    ) as namespace:
        certificate = str(namespace.certificate)
        ready = {"connection_string": namespace.connection_string, "certificate": certificate}
        print(json.dumps(ready), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
