"""The journal of lock tokens: which locks a reader holds, written before its rows go downstream.

When a task or the driver dies, its messages stay locked. A retry that simply received would get
newer messages while the older ones are locked: the order would break, and the older ones would wait
until their locks expire. So a reader records its tokens first, and a retry of the same epoch and
queue returns (abandons) them, newest first, before it receives.

A reader may die after messages were handed out to it and before it recorded them. So it also
records that it is about to request messages. A page that ends like this is *open*: messages of its
queue may be locked with unknown tokens. A retry does not read such a queue;
`pairbus.syphon.orphaned_locks` decides when it may be read again.

There is one file, a page, per epoch, queue and attempt. It consists of records of 16 bytes: tokens,
and marks between them. Two processes may write to one page, because a retry cannot be sure that the
attempt before it is dead. The retry marks the page and then reads it; the older attempt marks that
it requests and then checks that the page has the size it left. So one of the two always sees the
other.

Nothing is synced to the disk: the journal has to outlive a process, and when a machine dies the
locks expire by themselves.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from urllib.parse import quote, unquote

from pairbus.runtime import AppendFile, AsyncRuntime, Files, Runtime, ThreadRuntime
from pairbus.syphon.object_files import ObjectFiles

__all__ = [
    "MARK_REQUESTS",
    "MARK_TAKEN_OVER",
    "TOKEN",
    "Journal",
    "JournalPage",
    "PageWriter",
    "queue_of",
]

#: Bytes of a lock token, and of every record.
TOKEN = 16

_MARK = b"pairbus"
_REQUESTS = b"?"  # from here on messages may be handed out
_RECORDED = b"."  # all of them are recorded; the number of the newest
_TAKEN_OVER = b"!"  # a later attempt has come
_RETURNED = b"<"  # the tokens of the first records, up to this number, were returned


def _mark(kind: bytes, number: int = 0) -> bytes:
    return _MARK + kind + number.to_bytes(8, "big")


#: The record that a reader requests messages.
MARK_REQUESTS = _mark(_REQUESTS)

#: The record that a later attempt has come.
MARK_TAKEN_OVER = _mark(_TAKEN_OVER)


@dataclass
class JournalPage:
    """The content of one page."""

    path: PurePath
    data: bytes = field(repr=False)
    files: "Files | ObjectFiles" = field(repr=False)
    is_open: bool = False
    is_taken_over: bool = False
    newest: int = 0  # the highest sequence number that was recorded
    _returned: int = 0

    def __post_init__(self) -> None:
        for _, kind, number in self._marks():
            if kind == _REQUESTS:
                self.is_open = True
            elif kind == _RECORDED:
                self.is_open = False
                self.newest = max(self.newest, number)
            elif kind == _TAKEN_OVER:
                self.is_taken_over = True
            elif kind == _RETURNED:
                self._returned = max(self._returned, number)

    def _marks(self) -> Iterator[tuple[int, bytes, int]]:
        """Yield place, kind and number of each mark. Most records are tokens: they are skipped."""
        data, at = self.data, self.data.find(_MARK)
        while at >= 0:
            if at % TOKEN == 0 and at + TOKEN <= len(data):
                yield at, data[at + 7 : at + 8], int.from_bytes(data[at + 8 : at + TOKEN], "big")
            at = data.find(_MARK, at + 1)

    @property
    def tokens(self) -> list[bytes]:
        """The tokens that were not returned yet, oldest first."""
        marks = {place for place, _, _ in self._marks()}
        last = len(self.data) - TOKEN + 1
        places = [n for n in range(self._returned * TOKEN, last, TOKEN) if n not in marks]
        return [self.data[n : n + TOKEN] for n in places]

    @property
    def is_uncertain(self) -> bool:
        """Whether messages may be locked that this page does not list."""
        return self.is_open or self.is_taken_over

    @property
    def queue(self) -> str:
        """The queue that was read."""
        return queue_of(self.path)

    def mark_returned(self) -> None:
        """Record that its tokens were returned, so that they are not returned again."""
        if self.is_open and not isinstance(self.files, ObjectFiles):
            # Its writer may be alive, and record more tokens.
            _append(self.files, self.path, _mark(_RETURNED, len(self.data) // TOKEN))
        else:
            self.remove()

    def remove(self) -> None:
        """Remove the page."""
        self.files.remove(self.path)


def queue_of(path: PurePath) -> str:
    """Return the queue whose page this is."""
    return unquote(path.name.rpartition("@")[0])


def _append(files: Files, path: PurePath, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        file = files.open_append(path, create=False)
        try:
            file.write(data)
        finally:
            file.close()


class Journal:
    """The journal in one state directory, on a disk or a share.

    Args:
        state: the state directory.
        runtime: whose files and random ids are used.
    """

    def __init__(self, state: str | Path, runtime: "AsyncRuntime | Runtime | None" = None) -> None:
        self.root = Path(state) / "journal"
        self._runtime = runtime or ThreadRuntime()
        self._files = self._runtime.files
        self._abandoned: set[Path] = set()

    def open_page(self, epoch: int, queue: str) -> "PageWriter":
        """Open a new page for one attempt to read one queue in one epoch."""
        folder = self.root / str(epoch)
        self._files.make_folder(folder)
        path = folder / f"{quote(queue, safe='')}@{self._runtime.uuid4().hex}"
        return PageWriter(self._files.open_append(path))

    def take_over(self, epoch: int, queue: str) -> list[JournalPage]:
        """Return the pages of earlier attempts at this epoch and queue, and mark them."""
        pages = []
        prefix = quote(queue, safe="") + "@"
        for path in self._pages(self.root / str(epoch)):
            if path.name.startswith(prefix):
                _append(self._files, path, MARK_TAKEN_OVER)
                pages.append(self._read(path))
        return pages

    def uncertain(self, epoch: int) -> dict[str, list[JournalPage]]:
        """Return the uncertain pages, by queue, of epochs up to this one.

        These epochs must be over: a reader that is at work has an open page, too.
        """
        found: dict[str, list[JournalPage]] = {}
        for number, path in self._all():
            if number <= epoch or path in self._abandoned:
                page = self._read(path)
                if page.is_uncertain:
                    found.setdefault(page.queue, []).append(page)
        return found

    def queues_of(self, epoch: int) -> set[str]:
        """Return the queues that have pages of this epoch: nothing of the others was read in it."""
        return {queue_of(path) for path in self._pages(self.root / str(epoch))}

    def pages_of(self, queue: str) -> list[JournalPage]:
        """Return the pages of a queue, of all epochs."""
        prefix = quote(queue, safe="") + "@"
        return [self._read(path) for _, path in self._all() if path.name.startswith(prefix)]

    def abandon_after(self, epoch: int) -> None:
        """Make the pages of later epochs uncertain: Spark's checkpoint was lost.

        Their readers are dead, and no epoch will come that takes them over.
        """
        for number, path in self._all():
            if number > epoch:
                _append(self._files, path, MARK_TAKEN_OVER)
                self._abandoned.add(path)

    def has_entries_since(self, moment: float) -> bool:
        """Whether a reader recorded anything after this moment (seconds since 1970)."""
        found = (self._files.info(path) for _, path in self._all())
        return any(info is not None and info.modified >= moment and info.size for info in found)

    def drop_before(self, epoch: int) -> None:
        """Remove the epochs that are over, except their uncertain pages."""
        for number, folder in self._epochs():
            if number < epoch:
                for path in self._pages(folder):
                    if not self._read(path).is_uncertain:
                        self._files.remove(path)
                with contextlib.suppress(OSError):  # it is not empty
                    self._files.remove_folder(folder)

    def _epochs(self) -> list[tuple[int, Path]]:
        numbers = sorted(int(name) for name in self._files.list(self.root) if name.isdigit())
        return [(number, self.root / str(number)) for number in numbers]

    def _all(self) -> Iterator[tuple[int, Path]]:
        """Yield the pages of all epochs, each with its epoch."""
        for number, folder in self._epochs():
            for path in self._pages(folder):
                yield number, path

    def _pages(self, folder: Path) -> list[Path]:
        return [folder / name for name in self._files.list(folder) if "@" in name]

    def _read(self, path: Path) -> JournalPage:
        try:
            return JournalPage(path, self._files.read(path), self._files)
        except FileNotFoundError:
            return JournalPage(path, b"", self._files)


class PageWriter:
    """Where one attempt records that it requests messages, and the tokens that it receives."""

    def __init__(self, file: AppendFile) -> None:
        self._file = file
        self._size = 0

    def request(self) -> bool:
        """Record that messages may be handed out from now on; False if a later attempt has come."""
        self._write(MARK_REQUESTS)
        return self._file.size == self._size

    def record(self, tokens: Sequence[bytes], newest: int = 0, *, is_complete: bool = True) -> None:
        """Record tokens; when this returns, a retry will find them.

        Args:
            tokens: oldest first.
            newest: the highest of their sequence numbers.
            is_complete: whether these are all that were handed out; else the page stays open.
        """
        marks = [_mark(_RECORDED, newest)] + ([] if is_complete else [MARK_REQUESTS])
        self._write(b"".join([*tokens, *marks]))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._size += len(data)

    def close(self) -> None:
        """Close the page; a second call does nothing."""
        self._file.close()
