"""The token journal: which lock tokens a reader holds for an epoch, noted before a row goes on.

When a task or the driver dies, its messages stay locked. A retry that simply received would get
newer messages while the older ones sit locked: order broken, and a wait until the locks end. So the
reader notes its tokens first, and a retry of the same epoch and queue gives them back, newest
first, before it receives. The journal also tells the driver's side how much an epoch got.

One file per epoch, queue and attempt, of 16 bytes per token. Nothing is synced to the disk: the
journal has to outlive a process, and after the death of a machine the locks end by themselves.
"""

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

__all__ = ["TOKEN", "Journal"]

#: Bytes of a lock token.
TOKEN = 16


class Journal:
    """The journal below one state directory."""

    def __init__(self, state: str | Path) -> None:
        self.root = Path(state) / "journal"

    def page(self, epoch: int, queue: str) -> "Page":
        """Open a new page for one attempt to read one queue in one epoch."""
        folder = self.root / str(epoch)
        folder.mkdir(parents=True, exist_ok=True)
        return Page(folder / f"{quote(queue, safe='')}@{uuid.uuid4().hex}")

    def earlier(self, epoch: int, queue: str) -> list[bytes]:
        """The tokens that earlier attempts noted, newest first; their pages are emptied."""
        prefix = quote(queue, safe="") + "@"
        tokens: list[bytes] = []
        folder = self.root / str(epoch)
        if not folder.is_dir():
            return tokens
        for path in sorted(folder.iterdir()):
            if path.name.startswith(prefix):
                data = path.read_bytes()
                tokens += [data[i : i + TOKEN] for i in range(0, len(data), TOKEN)]
        tokens.reverse()
        return tokens

    def forget(self, epoch: int, queue: str) -> None:
        """Remove the pages of one queue in one epoch: what they held was given back."""
        prefix = quote(queue, safe="") + "@"
        folder = self.root / str(epoch)
        if folder.is_dir():
            for path in folder.iterdir():
                if path.name.startswith(prefix):
                    path.unlink(missing_ok=True)

    def received(self, epoch: int) -> dict[str, int]:
        """How many messages each queue gave in this epoch."""
        counts: dict[str, int] = {}
        folder = self.root / str(epoch)
        if folder.is_dir():
            for path in folder.iterdir():
                queue = unquote(path.name.rpartition("@")[0])
                counts[queue] = counts.get(queue, 0) + path.stat().st_size // TOKEN
        return counts

    def anything_since(self, moment: float) -> bool:
        """Whether a reader noted anything after this moment (seconds since 1970)."""
        return any(
            page.stat().st_mtime >= moment and page.stat().st_size
            for page in self.root.glob("*/*@*")
        )

    def drop_before(self, epoch: int) -> None:
        """Remove the epochs that are done."""
        if not self.root.is_dir():
            return
        for folder in self.root.iterdir():
            if folder.name.isdigit() and int(folder.name) < epoch:
                shutil.rmtree(folder, ignore_errors=True)


class Page:
    """Where one attempt notes its tokens."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, tokens: Sequence[bytes]) -> None:
        """Note tokens; when this returns, a retry will find them."""
        os.write(self._file, b"".join(tokens))

    def close(self) -> None:
        """Close the page; twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
