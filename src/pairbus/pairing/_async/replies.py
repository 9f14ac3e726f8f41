"""The reply queue: receives the answers to a client's fences, while it waits for any.

A client without open fences has no receiver, so that a healthy pair costs nothing. The reply queue
has sessions, and each client receives the session that is named after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from azure.servicebus.aio import ServiceBusReceiver

from pairbus.classify import Verdict
from pairbus.exceptions import PairingError, describe
from pairbus.names import reply_queue_path
from pairbus.pairing._async.connection import close_quietly
from pairbus.pairing.abandoning import aabandonable
from pairbus.pairing.fences import Answer, read_answer
from pairbus.pairing.runtime import AEvent, AGuard, acheck_cancelled, aspawn
from pairbus.runtime import AsyncTask

if TYPE_CHECKING:
    from pairbus.pairing._async.pair import Pair

logger = logging.getLogger("pairbus.replies")

QUIET = 60.0  # seconds without an answer until the link is opened again
POLL = 1  # seconds that one receive waits: in the sync SDK a receive cannot be interrupted
CLOSE_TIMEOUT = 2.0
FIRST_RETRY, MAX_RETRY = 0.5, 15.0


class Replies:
    """Receives answers for the entities of one paired client.

    Args:
        pair: The pair.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.path = reply_queue_path(pair.primary_namespace)
        self.problem: str | None = None
        self._waiting: dict[object, Callable[[Answer], None]] = {}
        self._stopped: AEvent | None = None
        self._receiving: AsyncTask | None = None
        self._guard = AGuard()

    def listen(self, owner: object, heard: Callable[[Answer], None]) -> None:
        """Call `heard` with each answer until `ignore`."""
        with self._guard:
            self._waiting[owner] = heard
            if self._stopped is None:
                self._stopped = AEvent()
                self._receiving = aspawn(self._run, self._stopped, name="pairbus replies")

    def ignore(self, owner: object) -> None:
        """Call the owner no more; after the last owner the receiver is closed."""
        with self._guard:
            self._waiting.pop(owner, None)
            if self._waiting:
                return
            stopped, self._stopped = self._stopped, None
        if stopped is not None:
            stopped.set()

    async def close(self) -> None:
        """Wait until the receiver is closed, if there was one; no owner listens any more."""
        if self._receiving is not None and not self._receiving.is_done:
            await self._receiving.join(POLL + 2 * CLOSE_TIMEOUT)

    async def check(self) -> None:
        """Open the receiver once: this proves the right Listen, and costs no message.

        Raises:
            PairingError: the reply queue cannot be received from.
        """
        host = self._pair.secondary_host
        try:
            receiver = await self._open()
        except Exception as error:
            verdict = self._pair.verdict(error)
            if verdict is Verdict.REFUSED:
                raise PairingError(
                    f'recovery="drain_first" needs the right Listen on the reply queue '
                    f"{self.path!r} of the secondary {host}. {describe(error)}"
                ) from error
            if verdict is Verdict.MISSING:
                raise PairingError(
                    f'recovery="drain_first" needs the reply queue {self.path!r} in the secondary '
                    f"{host}: create it with `pairbus pair create --drain-first`, or pass "
                    f"secondary_admin with the right Manage. {describe(error)}"
                ) from error
            raise PairingError(
                f"The reply queue {self.path!r} of the secondary {host} cannot be opened. "
                f"{describe(error)}"
            ) from error
        await close_quietly(receiver, seconds=CLOSE_TIMEOUT)

    async def _open(self) -> ServiceBusReceiver:
        pair = self._pair
        receiver = pair.secondary.get_queue_receiver(self.path, session_id=pair.client_id)
        try:
            await aabandonable(
                pair.timing.open_timeout,
                receiver.__aenter__,
                what=f"opening the reply queue {self.path}",
            )
        except BaseException:
            await close_quietly(receiver, seconds=CLOSE_TIMEOUT)
            raise
        return receiver

    async def _run(self, stopped: AEvent) -> None:
        """Receive until `stopped`.

        If no answer comes for a while, the network may have lost the connection, which the SDK does
        not notice: it is opened again.
        """
        retry = FIRST_RETRY
        while not stopped.is_set():
            acheck_cancelled()
            receiver: ServiceBusReceiver | None = None
            try:
                receiver = await self._open()
                heard_at = monotonic()
                while not stopped.is_set() and monotonic() - heard_at < QUIET:
                    acheck_cancelled()
                    if await self._receive(receiver):
                        heard_at = monotonic()
                    retry, self.problem = FIRST_RETRY, None
            except Exception as error:  # noqa: BLE001  # whatever it is, the drain waits
                if not stopped.is_set():
                    logger.debug("the reply queue cannot be received from: %r", error)
                    self.problem = describe(error)
            if receiver is not None:
                await close_quietly(receiver, seconds=CLOSE_TIMEOUT)
            if await stopped.wait(retry):
                return
            retry = min(2 * retry, MAX_RETRY)

    async def _receive(self, receiver: ServiceBusReceiver) -> bool:
        """Receive, pass on and settle answers; whether there were any."""
        receive = partial(receiver.receive_messages, max_message_count=50, max_wait_time=POLL)
        seconds = POLL + self._pair.timing.send_timeout
        got: list[Any] = await aabandonable(seconds, receive, what="receiving answers")
        self._pair.accounts.answered(self.path, len(got))
        for answer in filter(None, map(read_answer, got)):
            for heard in list(self._waiting.values()):
                heard(answer)
        for message in got:
            settle = partial(receiver.complete_message, message)
            await aabandonable(seconds, settle, what="settling an answer")
        return bool(got)
