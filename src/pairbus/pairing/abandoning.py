"""Run a call that may never return, and continue without it after a deadline.

There are two variants, as in `pairbus.pairing.runtime`. A task is cancelled and cleans up in the
background. A thread cannot be cancelled: it is left running as a daemon, and its connection is cut
so that it ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing.runtime import aspawn

T = TypeVar("T")
logger = logging.getLogger("pairbus.tasks")


class AbandonedError(OperationTimeoutError):
    """A call did not end within its deadline, and was abandoned."""

    def __init__(self, what: str) -> None:
        super().__init__(message=f"{what} did not end within its deadline.")


async def aabandonable(
    seconds: float,
    call: Callable[..., Awaitable[T]],
    *args: object,
    what: str,
    give_up: Callable[[], object] | None = None,
    late: Callable[[], Awaitable[object]] | None = None,
) -> T:
    """The result of `call`, or its exception, if it ends within `seconds`.

    Args:
        seconds: The deadline.
        call: The function to call with `args`.
        args: Its arguments.
        what: Its name in errors.
        give_up: Called at the deadline, to make the call end.
        late: Called when the call has ended after the deadline.

    Raises:
        AbandonedError: at the deadline. The task is cancelled and abandoned.
    """

    async def run() -> T:
        return await call(*args)

    task = asyncio.get_running_loop().create_task(run(), name=what)
    try:
        await asyncio.wait({task}, timeout=max(0.0, seconds))
    except BaseException:
        _abandon(task, late)
        raise
    if task.done():
        return task.result()
    _abandon(task, late)
    if give_up is not None:
        give_up()
    raise AbandonedError(what)


def _abandon(task: asyncio.Task[Any], late: Callable[[], Awaitable[object]] | None) -> None:
    task.cancel()

    async def clean_up() -> None:
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            logger.debug("%s failed after its deadline: %r", task.get_name(), task.exception())
        if late is not None:
            await late()

    aspawn(clean_up, name=f"{task.get_name()}, abandoned")


def abandonable(
    seconds: float,
    call: Callable[..., T],
    *args: object,
    what: str,
    give_up: Callable[[], object] | None = None,
    late: Callable[[], object] | None = None,
) -> T:
    """The result of `call`, or its exception, if it ends within `seconds`.

    Args:
        seconds: The deadline.
        call: The function to call with `args`.
        args: Its arguments.
        what: Its name in errors.
        give_up: Called at the deadline, to make the call end.
        late: Called when the call has ended after the deadline.

    Raises:
        AbandonedError: at the deadline. The thread is abandoned.
    """
    result: list[T] = []
    failure: list[BaseException] = []
    finished = threading.Event()
    is_abandoned = threading.Event()
    guard = threading.Lock()

    def run() -> None:
        try:
            result.append(call(*args))
        except BaseException as error:  # noqa: BLE001  # carried to the caller's thread
            failure.append(error)
        with guard:
            finished.set()
        if is_abandoned.is_set() and late is not None:
            try:
                late()
            except Exception as error:  # noqa: BLE001  # nobody waits for it any more
                logger.debug("cleaning up after %s failed: %r", what, error)

    threading.Thread(target=run, name=what, daemon=True).start()
    if not finished.wait(max(0.0, seconds)):
        with guard:
            if not finished.is_set():
                is_abandoned.set()
        if is_abandoned.is_set():
            if give_up is not None:
                give_up()
            raise AbandonedError(what)
    if failure:
        raise failure.pop()  # the thread may end later, and must keep no frame of the caller alive
    return result[0]
