"""The doorbell: one long poll per quiet queue, so that idling costs next to nothing.

A thread per queue holds one receive that lasts up to the long poll. A message that arrives is
released again, which raises no delivery count, and the bell rings. All threads share one
connection.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from pairbus.client.errors import LeanError
from pairbus.spark.options import OptionError, Target
from pairbus.syphon.connections import Pool

__all__ = ["Doorbell"]

log = logging.getLogger("pairbus.syphon")


class Doorbell:
    """Listens at queues; see `keeper.Bell`."""

    def __init__(
        self, target: Target, long_poll: float, *, problem: Callable[[str | None], None]
    ) -> None:
        self._pool = Pool(target, "doorbell")
        self._long_poll = long_poll
        self._problem = problem
        self._condition = threading.Condition()
        self._wanted: set[str] = set()
        self._armed: set[str] = set()
        self._rung: set[str] = set()
        self._polls: dict[str, int] = {}
        self._rings: list[tuple[str, int]] = []
        self._broken: set[str] = set()
        self._threads: dict[str, threading.Thread] = {}
        self._closed = False

    def listen(self, queues: Sequence[str]) -> None:
        """Listen at these queues from now on; a poll under way at another one just ends."""
        with self._condition:
            self._wanted = set(queues)
            for queue in queues:
                if queue not in self._threads:
                    self._threads[queue] = threading.Thread(
                        target=self._run, args=(queue,), name=f"pairbus-bell-{queue}", daemon=True
                    )
                    self._threads[queue].start()
            self._condition.notify_all()

    def rung(self) -> set[str]:
        """The queues where a message arrived; each is told once."""
        with self._condition:
            rung, self._rung = self._rung, set()
            return rung

    def armed(self) -> set[str]:
        """The queues where a poll is under way: it may hold a message for a moment."""
        with self._condition:
            return set(self._armed)

    def polls(self) -> dict[str, int]:
        """Receives that began since the last call, by queue."""
        with self._condition:
            polls, self._polls = self._polls, {}
            return polls

    def rings(self) -> list[tuple[str, int]]:
        """Messages that rang since the last call: their queue and their bytes."""
        with self._condition:
            rings, self._rings = self._rings, []
            return rings

    def broken(self) -> set[str]:
        """The queues where a poll broke off: a message may be locked; each is told once."""
        with self._condition:
            broken, self._broken = self._broken, set()
            return broken

    def close(self) -> None:
        """Stop listening."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._pool.drop()

    def _run(self, queue: str) -> None:
        failures = 0
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._closed or (queue in self._wanted and queue not in self._rung)
                )
                if self._closed:
                    return
                self._armed.add(queue)
            asked, rang, size = False, False, 0
            try:
                receiver = self._pool.receiver(queue)
                with self._condition:
                    # when it begins: one that never ends, because we do, is charged too
                    self._polls[queue] = self._polls.get(queue, 0) + 1
                asked = True
                rang = receiver.wait(self._long_poll)
                size = receiver.rung_bytes
                failures = 0
            except LeanError as exc:
                failures += 1
                if asked:
                    with self._condition:
                        self._broken.add(queue)
                if str(exc.condition) != "amqp:not-found":  # one queue may be missing
                    self._problem(f"secondary: {exc.condition}: {exc.description}")
                if failures == 1 and str(exc.condition) == "amqp:not-found":
                    log.warning("%s does not exist; is backlog_queue_count right?", queue)
                elif failures == 1:
                    log.warning("%s: %s", queue, exc.condition)
                self._pool.forget_receiver(queue)
            except Exception as exc:  # noqa: BLE001 - the user's credential may raise anything
                failures += 1
                # Only ours is known to have no secret in its text.
                text = str(exc) if isinstance(exc, OptionError) else type(exc).__name__
                self._problem(f"secondary: {text}")
                if failures == 1:
                    log.warning("%s: cannot be listened at: %s", queue, text)
                self._pool.forget_receiver(queue)
            else:
                self._problem(None)
            with self._condition:
                self._armed.discard(queue)
                if rang:
                    self._rings.append((queue, size))
                    self._rung.add(queue)
                    self._wanted.discard(queue)
                elif failures:
                    self._condition.wait_for(
                        lambda: self._closed, timeout=min(30.0, 0.5 * 2**failures)
                    )
