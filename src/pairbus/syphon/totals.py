"""The coordinator's totals, and the two files that it writes when they change."""

from dataclasses import replace

from pairbus.syphon.records import BlockedRecord, TaskReport
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import ProgressRecord

__all__ = ["Totals"]


class Totals:
    """Adds up the reports of tasks.

    Args:
        former: the totals of former runs.
    """

    def __init__(self, former: ProgressRecord) -> None:
        self._forwarded = former.forwarded
        self._size = former.size
        self._dead_lettered = dict(former.dead_lettered)
        self._received = former.received
        self._oldest: dict[str, int | None] = {}  # by queue; None if it had no more messages
        self._blocked: BlockedRecord | None = None  # as last written
        self._progress: ProgressRecord | None = None  # as last written
        self.is_started = False
        self.is_listening = False
        self.is_empty = False
        self.is_released = False
        self.listening: tuple[str, ...] = ()

    def add(self, report: TaskReport) -> None:
        """Add the report of a task."""
        self._forwarded += report.forwarded
        self._size += report.size
        for reason, number in report.dead_lettered.items():
            self._dead_lettered[reason] = self._dead_lettered.get(reason, 0) + number
        for queue, read in report.read.items():
            self._received += read.messages
            self._oldest[queue] = read.oldest if read.has_more else None

    def record(self, parts: ProgressRecord) -> ProgressRecord:
        """Return the totals together with the state of the other parts."""
        return replace(
            parts,
            forwarded=self._forwarded,
            size=self._size,
            dead_lettered=dict(self._dead_lettered),
            received=self._received,
            is_started=self.is_started,
            is_empty=self.is_empty,
            is_listening=self.is_listening,
            is_released=self.is_released,
            suspect=tuple(sorted({*self.listening, *parts.suspect})),
            oldest=min((oldest for oldest in self._oldest.values() if oldest), default=None),
        )

    def publish(
        self, state: StateDirectory, blocked: BlockedRecord, progress: ProgressRecord
    ) -> None:
        """Write the files whose content changed since the last call."""
        if blocked != self._blocked:
            state.write_blocked(blocked)
            self._blocked = blocked
        if progress != self._progress:
            state.write_progress(progress)
            self._progress = progress
