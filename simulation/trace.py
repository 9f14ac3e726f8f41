"""The account of a run: what happened, when, and a hash over all of it."""

from __future__ import annotations

import hashlib
from collections import deque


class Trace:
    """Collects events. The hash covers every one of them; the last ones are kept as text."""

    def __init__(self, keep: int = 2000) -> None:
        self._hash = hashlib.sha256()
        self._last: deque[str] = deque(maxlen=keep)
        self.count = 0

    def add(self, now: float, what: str, data: bytes = b"") -> None:
        """Note an event, and the bytes that belong to it."""
        line = f"{now:.6f} {what}"
        self._hash.update(line.encode())
        self._hash.update(data)
        self._last.append(line)
        self.count += 1

    @property
    def digest(self) -> str:
        """The hash over everything so far."""
        return self._hash.hexdigest()

    def timeline(self) -> list[str]:
        """The last events, oldest first."""
        return list(self._last)
