"""The journal in an object store: one object for each queue and micro-batch, and no lock tokens.

A reader writes an object before it receives, and nothing afterwards. If its attempt fails, it is
not known which messages were handed out to it. So the retry marks the page and leaves the queue to
the coordinator, which waits until the queue is clear (see `pairbus.syphon.orphaned_locks`). The
same happens with all pages of a former coordinator: a page does not show that its epoch was
completed.

Compared to the journal on a disk, this saves a write for each batch of messages, and a failed task
costs the wait for its locks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from urllib.parse import quote

from pairbus.runtime import AsyncRuntime, Runtime
from pairbus.syphon.journal import (
    MARK_REQUESTS,
    MARK_TAKEN_OVER,
    Journal,
    JournalPage,
    PageWriter,
    queue_of,
)
from pairbus.syphon.object_files import ObjectFiles, open_files

__all__ = ["LockJournal", "ObjectJournal", "open_journal"]

_TAKEN = ".taken"


@dataclass
class ObjectPage(JournalPage):
    """A page whose mark of a later attempt is an object of its own."""

    marker: PurePosixPath | None = field(default=None, repr=False)

    def remove(self) -> None:
        """Remove the page and its mark."""
        self.files.remove(self.path)
        if self.marker is not None:
            self.files.remove(self.marker)


class WrittenPage(PageWriter):
    """The writer of a page that was complete when it was opened."""

    def __init__(self) -> None:
        """Write nothing more."""

    def request(self) -> bool:
        """Always allow: there is no way to see a later attempt."""
        return True

    def record(self, tokens: Sequence[bytes], newest: int = 0, *, is_complete: bool = True) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Close nothing."""


class ObjectJournal:
    """The journal below one prefix.

    Args:
        state: the path of the state.
        files: its objects.
        runtime: random ids.
    """

    def __init__(
        self, state: PurePath, files: ObjectFiles, runtime: AsyncRuntime | Runtime
    ) -> None:
        self.root = state / "journal"
        self._files = files
        self._runtime = runtime
        self._inherited: set[PurePosixPath] | None = None

    def open_page(self, epoch: int, queue: str) -> PageWriter:
        """Record that one attempt reads one queue in one epoch."""
        name = f"{quote(queue, safe='')}@{self._runtime.uuid4().hex}"
        self._files.write(self.root / str(epoch) / name, MARK_REQUESTS)
        return WrittenPage()

    def take_over(self, epoch: int, queue: str) -> list[JournalPage]:
        """Return the pages of earlier attempts at this epoch and queue, and mark them."""
        pages: list[JournalPage] = []
        prefix = quote(queue, safe="") + "@"
        folder = self.root / str(epoch)
        names = [n for n in self._files.list(folder) if n.startswith(prefix)]
        for name in names:
            if not name.endswith(_TAKEN):
                if name + _TAKEN not in names:
                    self._files.write(folder / (name + _TAKEN), b"")
                pages.append(self._page(PurePosixPath(folder / name), is_taken_over=True))
        return pages

    def uncertain(self, epoch: int) -> dict[str, list[JournalPage]]:
        """Return the uncertain pages, by queue, of epochs up to this one; these must be over."""
        paths = self._paths()
        if self._inherited is None:  # the first search: no reader is at work
            self._inherited = set(paths)
        found: dict[str, list[JournalPage]] = {}
        for path in paths:
            is_taken_over = path.with_name(path.name + _TAKEN) in paths
            is_over = _epoch_of(path) <= epoch and is_taken_over
            if not path.name.endswith(_TAKEN) and (is_over or path in self._inherited):
                page = self._page(path, is_taken_over=is_taken_over)
                found.setdefault(page.queue, []).append(page)
        return found

    def abandon_after(self, epoch: int) -> None:
        """Do nothing: every page that a former coordinator left is uncertain."""

    def queues_of(self, epoch: int) -> set[str]:
        """Return the queues that have pages of this epoch: nothing of the others was read in it."""
        return {queue_of(path) for path in self._paths() if _epoch_of(path) == epoch}

    def pages_of(self, queue: str) -> list[JournalPage]:
        """Return the pages of a queue, of all epochs."""
        paths = [path for path in self._paths() if not path.name.endswith(_TAKEN)]
        pages = [self._page(path, is_taken_over=False) for path in paths]
        return [page for page in pages if page.queue == queue]

    def has_entries_since(self, moment: float) -> bool:
        """Whether a reader recorded anything after this moment (seconds since 1970).

        Stores give times in whole seconds.
        """
        return any(modified >= moment - 1 for modified in self._files.tree(self.root).values())

    def drop_before(self, epoch: int) -> None:
        """Remove the epochs that are over, except their uncertain pages."""
        paths = self._paths()
        for path in paths:
            is_taken_over = (
                path.name.endswith(_TAKEN) or path.with_name(path.name + _TAKEN) in paths
            )
            is_inherited = self._inherited is None or path in self._inherited
            if _epoch_of(path) < epoch and not is_taken_over and not is_inherited:
                self._files.remove(path)

    def _paths(self) -> list[PurePosixPath]:
        return [path for path in self._files.tree(self.root) if "@" in path.name]

    def _page(self, path: PurePosixPath, *, is_taken_over: bool) -> ObjectPage:
        data = MARK_REQUESTS + (MARK_TAKEN_OVER if is_taken_over else b"")
        marker = path.with_name(path.name + _TAKEN) if is_taken_over else None
        return ObjectPage(path, data, self._files, marker=marker)


def _epoch_of(path: PurePath) -> int:
    return int(path.parent.name) if path.parent.name.isdigit() else 0


LockJournal = Journal | ObjectJournal
"""A journal, wherever it is."""


def open_journal(location: str | PurePath, runtime: AsyncRuntime | Runtime) -> LockJournal:
    """Return the journal of a state at a local path or a URL."""
    files, path = open_files(location, runtime)
    if isinstance(files, ObjectFiles):
        return ObjectJournal(path, files, runtime)
    return Journal(Path(path), runtime)
