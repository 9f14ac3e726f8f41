"""The doorbell: one long poll per quiet queue, so that an idle syphon costs almost nothing.

A task per queue holds one receive that lasts up to the long poll. A message that arrives is
released again, which does not raise its delivery count, and the doorbell rings. All polls share one
connection.
"""

import logging
from collections.abc import Sequence

from pairbus.client.errors import ClientError
from pairbus.runtime import AsyncRuntime, AsyncTask
from pairbus.syphon._async.backlog import MISSING
from pairbus.syphon._async.connections import NamespaceConnections
from pairbus.syphon.target import OptionError

__all__ = ["Doorbell"]

log = logging.getLogger("pairbus.syphon")


class Doorbell:
    """Keeps a long poll open on each quiet queue.

    Args:
        runtime: tasks and conditions.
        connections: the connection to the secondary.
        long_poll: seconds that one receive waits.
    """

    def __init__(
        self, runtime: AsyncRuntime, connections: NamespaceConnections, long_poll: float
    ) -> None:
        self._runtime = runtime
        self._connections = connections
        self._long_poll = long_poll
        self._changed = runtime.condition()
        self._wanted: set[str] = set()
        self._armed: set[str] = set()
        self._rung: set[str] = set()
        self._polls: dict[str, int] = {}
        self._rings: list[tuple[str, int]] = []
        self._broken: set[str] = set()
        self._tasks: dict[str, AsyncTask] = {}
        self._stop = runtime.event()
        self.problem: str | None = None

    def listen(self, queues: Sequence[str]) -> None:
        """Poll these queues from now on; polls of other queues end and are not repeated."""
        with self._changed:
            self._wanted = set(queues)
            for queue in queues:
                if queue not in self._tasks:
                    self._tasks[queue] = self._runtime.spawn(
                        self._run, queue, name=f"pairbus-doorbell-{queue}"
                    )
            self._changed.notify_all()

    def rung(self) -> set[str]:
        """Return the queues where a message arrived since the last call."""
        with self._changed:
            rung, self._rung = self._rung, set()
            return rung

    def armed(self) -> set[str]:
        """Return the queues where a poll is under way: it may hold a message for a moment."""
        with self._changed:
            return set(self._armed)

    def freeze(self) -> set[str]:
        """Start no poll until `listen`; return the queues where one is under way.

        A queue that is not among them can be read: no poll will take its oldest message meanwhile.
        """
        with self._changed:
            self._wanted = set()
            return set(self._armed)

    def take_results(self) -> tuple[dict[str, int], list[tuple[str, int]], set[str]]:
        """Return the results of the polls since the last call.

        Returns:
            The receives that began, by queue; the messages that ended a poll, each with its queue
            and bytes; the queues where a poll broke off, so that a message may be locked.
        """
        with self._changed:
            results = self._polls, self._rings, self._broken
            self._polls, self._rings, self._broken = {}, [], set()
            return results

    async def close(self) -> None:
        """End the polls."""
        with self._changed:
            self._stop.set()
            self._changed.notify_all()
        await self._connections.drop()

    async def _run(self, queue: str) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._stop.is_set() and queue not in self._wanted - self._rung:
                    await self._changed.wait()
                if self._stop.is_set():
                    return
                self._armed.add(queue)
            size = await self._poll(queue, failures)
            failures = failures + 1 if size is None else 0
            with self._changed:
                self._armed.discard(queue)
                if size:
                    self._rings.append((queue, size))
                    self._rung.add(queue)
                    self._wanted.discard(queue)
            if failures:
                await self._stop.wait(min(30.0, 0.5 * 2**failures))

    async def _poll(self, queue: str, failures: int) -> int | None:
        """Poll once: the bytes of a message that arrived, 0 for none, None for a failure."""
        asked = False
        try:
            receiver = await self._connections.receiver(queue)
            if self._stop.is_set():
                await self._connections.drop()  # it was opened after `close`
                return None
            with self._changed:
                # Counted when it begins: a poll that is cut off by our own end is charged, too.
                self._polls[queue] = self._polls.get(queue, 0) + 1
            asked = True
            self.problem = None  # the link is attached; the poll itself may last for minutes
            has_arrived = await receiver.wait(self._long_poll)
            return max(1, int(receiver.arrived_bytes)) if has_arrived else 0
        except Exception as exc:  # noqa: BLE001 - the user's credential may raise anything
            if self._stop.is_set():
                return None  # `close` has ended it
            if asked:
                with self._changed:
                    self._broken.add(queue)
            self._note_failure(queue, exc, is_first=not failures)
        await self._connections.forget_receiver(queue)
        return None

    def _note_failure(self, queue: str, error: Exception, *, is_first: bool) -> None:
        """Make a failed poll the current problem; log the first of several."""
        if isinstance(error, ClientError) and str(error.condition) == MISSING:
            if is_first:  # no problem of the namespace: one queue may be missing
                log.info("%s does not exist", queue)
            return
        if isinstance(error, ClientError):
            short, text = str(error.condition), f"{error.condition}: {error.description}"
        else:
            # Of other errors, only our own are known to contain no secret.
            short = text = str(error) if isinstance(error, OptionError) else type(error).__name__
        self.problem = f"secondary: {text}"
        if is_first:
            log.warning("%s: the long poll failed: %s", queue, short)
