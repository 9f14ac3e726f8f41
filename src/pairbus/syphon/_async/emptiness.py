"""Find out whether the backlog queues are empty, for a syphon that stops when they are."""

from collections.abc import Callable

from pairbus.runtime import AsyncCondition, AsyncRuntime
from pairbus.syphon._async.backlog import BacklogQueues
from pairbus.syphon._async.deferral import Deferral
from pairbus.syphon.planner import Planner

__all__ = ["EmptinessCheck"]

QUIET = 1.0  # seconds without work until the queues are peeked
AGAIN = 2.0  # seconds between two checks


class EmptinessCheck:
    """Peeks the queues when there is nothing more to do.

    Args:
        runtime: the clock.
        guard: protects `planner` and `deferral`.
        backlog: the secondary.
        planner: learns which queues have messages.
        deferral: searches a queue that is not empty although no message in it is known.
        count: counts an operation for the ledger.
    """

    def __init__(
        self,
        runtime: AsyncRuntime,
        guard: AsyncCondition,
        backlog: BacklogQueues,
        planner: Planner,
        deferral: Deferral,
        count: Callable[..., None],
    ) -> None:
        self._runtime = runtime
        self._guard = guard
        self._backlog = backlog
        self._planner = planner
        self._deferral = deferral
        self._count = count
        self._quiet_since: float | None = None
        self._checked_at = 0.0

    async def check(self, *, is_busy: bool) -> bool:
        """Whether no message is left, locked ones included.

        Args:
            is_busy: there is something to do.
        """
        now = self._runtime.time()
        if is_busy:
            self._quiet_since = None
            return False
        self._quiet_since = self._quiet_since or now
        if now - self._quiet_since < QUIET or now - self._checked_at < AGAIN:
            return False
        self._checked_at = now
        for queue in self._planner.queues:
            self._count("management", queue, "peek", 1, 0, 0, 1)
            is_empty = await self._backlog.is_empty(queue)
            if is_empty is False:
                with self._guard:
                    # A message may be deferred and not recorded, or locked by another receiver.
                    self._deferral.search_again(queue)
                    self._planner.ready([queue])
            if not is_empty:  # unknown is not empty
                return False
        return True
