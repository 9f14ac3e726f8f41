"""The token journal: which lock tokens a reader holds for an epoch, noted before a row goes on.

When a task or the driver dies, its messages stay locked. A retry that simply received would get
newer messages while the older ones sit locked: order broken, and a wait until the locks end. So the
reader notes its tokens first, and a retry of the same epoch and queue gives them back, newest
first, before it receives.

What a reader was given but had not noted when it died nobody knows. So it also notes that it is
about to ask. A page that ends like this is *open*: messages of its queue may be locked by tokens
that are nowhere. A retry leaves such a queue alone, and `pairbus.syphon.orphaned_locks` sees to it.

One file per epoch, queue and attempt, of records of 16 bytes: tokens, and marks between them. Two
processes may write to one page, as a retry cannot be sure that the attempt before it is dead: the
retry marks the page and then reads it, the older one marks that it asks and then looks whether its
page is as it left it, so that one of the two always sees the other.

Nothing is synced to the disk: the journal has to outlive a process, and after the death of a
machine the locks end by themselves.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

__all__ = ["TOKEN", "Journal", "Left", "Page"]

#: Bytes of a lock token, and of every record.
TOKEN = 16

_MARK = b"pairbus"
_ASKS = b"?"  # from here on messages may be handed out
_NOTED = b"."  # all of them are noted; the number of the newest
_TAKEN_OVER = b"!"  # a later attempt has come
_GIVEN_BACK = b"<"  # the tokens in so many records from the beginning were given back


def _mark(kind: bytes, number: int = 0) -> bytes:
    return _MARK + kind + number.to_bytes(8, "big")


@dataclass
class Left:
    """What one page says."""

    path: Path
    data: bytes = field(repr=False)
    is_open: bool = False
    is_taken_over: bool = False
    newest: int = 0  # the highest sequence number that was noted
    _back: int = 0

    def __post_init__(self) -> None:
        for _, kind, number in self._marks():
            if kind == _ASKS:
                self.is_open = True
            elif kind == _NOTED:
                self.is_open = False
                self.newest = max(self.newest, number)
            elif kind == _TAKEN_OVER:
                self.is_taken_over = True
            elif kind == _GIVEN_BACK:
                self._back = max(self._back, number)

    def _marks(self) -> Iterator[tuple[int, bytes, int]]:
        """Place, kind and number of each mark. A page is mostly tokens: these are skipped."""
        data, at = self.data, self.data.find(_MARK)
        while at >= 0:
            if at % TOKEN == 0 and at + TOKEN <= len(data):
                yield at, data[at + 7 : at + 8], int.from_bytes(data[at + 8 : at + TOKEN], "big")
            at = data.find(_MARK, at + 1)

    @property
    def tokens(self) -> list[bytes]:
        """The tokens that nobody gave back, oldest first."""
        marks = {place for place, _, _ in self._marks()}
        last = len(self.data) - TOKEN + 1
        places = [n for n in range(self._back * TOKEN, last, TOKEN) if n not in marks]
        return [self.data[n : n + TOKEN] for n in places]

    @property
    def is_doubtful(self) -> bool:
        """Whether messages may be locked that are not noted here, or that somebody else noted."""
        return self.is_open or self.is_taken_over

    @property
    def queue(self) -> str:
        """The queue that was read."""
        return unquote(self.path.name.rpartition("@")[0])

    def given_back(self) -> None:
        """Its tokens were given back: nobody needs to do that again."""
        if self.is_open:  # whoever wrote it may still live, and note what it gets
            _append(self.path, _mark(_GIVEN_BACK, len(self.data) // TOKEN))
        else:
            self.path.unlink(missing_ok=True)


def _append(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, data)
        finally:
            os.close(file)


def _read(path: Path) -> Left:
    try:
        return Left(path, path.read_bytes())
    except FileNotFoundError:
        return Left(path, b"")


class Journal:
    """The journal below one state directory."""

    def __init__(self, state: str | Path) -> None:
        self.root = Path(state) / "journal"

    def page(self, epoch: int, queue: str) -> "Page":
        """Open a new page for one attempt to read one queue in one epoch."""
        folder = self.root / str(epoch)
        folder.mkdir(parents=True, exist_ok=True)
        return Page(folder / f"{quote(queue, safe='')}@{uuid.uuid4().hex}")

    def _folders(self) -> list[Path]:
        if not self.root.is_dir():
            return []
        found = [folder for folder in self.root.iterdir() if folder.name.isdigit()]
        return sorted(found, key=lambda folder: int(folder.name))

    def take_over(self, epoch: int, queue: str) -> list[Left]:
        """What earlier attempts at this epoch and queue left; they will not ask again."""
        left = []
        for path in sorted((self.root / str(epoch)).glob(quote(queue, safe="") + "@*")):
            _append(path, _mark(_TAKEN_OVER))
            left.append(_read(path))
        return left

    def doubtful(self, epoch: int) -> dict[str, list[Left]]:
        """The pages, by queue, of epochs up to this one, that leave a doubt.

        These epochs must be over: a reader that is at work has an open page, too.
        """
        found: dict[str, list[Left]] = {}
        for folder in self._folders():
            if int(folder.name) > epoch:
                break
            for path in sorted(folder.glob("*@*")):
                left = _read(path)
                if left.is_doubtful:
                    found.setdefault(left.queue, []).append(left)
        return found

    def anything_since(self, moment: float) -> bool:
        """Whether a reader noted anything after this moment (seconds since 1970)."""
        return any(
            page.stat().st_mtime >= moment and page.stat().st_size
            for page in self.root.glob("*/*@*")
        )

    def drop_before(self, epoch: int) -> None:
        """Remove the epochs that are done, but for the pages that leave a doubt."""
        for folder in self._folders():
            if int(folder.name) < epoch:
                for path in folder.iterdir():
                    if not _read(path).is_doubtful:
                        path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # it is not empty
                    folder.rmdir()


class Page:
    """Where one attempt notes that it asks, and the tokens that it gets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = 0

    def ask(self) -> bool:
        """Say that messages may be handed out from now on; False if a later attempt has come."""
        self._write(_mark(_ASKS))
        return os.fstat(self._file).st_size == self._size

    def note(self, tokens: Sequence[bytes], newest: int = 0, *, all_of_them: bool = True) -> None:
        """Note tokens; when this returns, a retry will find them.

        Args:
            tokens: oldest first.
            newest: the highest of their sequence numbers.
            all_of_them: whether these are all that were handed out; else the page stays open.
        """
        marks = [_mark(_NOTED, newest)] + ([] if all_of_them else [_mark(_ASKS)])
        self._write(b"".join([*tokens, *marks]))

    def _write(self, data: bytes) -> None:
        written = os.write(self._file, data)
        self._size += written
        if written < len(data):
            raise OSError(f"{self._path}: no room for {len(data) - written} bytes")

    def close(self) -> None:
        """Close the page; twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
