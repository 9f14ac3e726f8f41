"""Provides the backlog queues and checks that messages could be sent to them, in the background.

An application must be able to start while its secondary is down. So pairing waits at most a second.
Until the backlog queues are found and a link to one of them has been opened, the pair is
*unprotected*: it sends to the primary, and its status, an event and a warning give the reason. The
attempts continue, with back-off, until they succeed. A link proves the right to send without a
message.
"""

from __future__ import annotations

import logging
from time import monotonic

from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus import events
from pairbus.classify import Verdict
from pairbus.exceptions import PairingError, describe
from pairbus.pairing._async.backlog_queues import provide_queues
from pairbus.pairing._async.pair import Pair
from pairbus.pairing.abandoning import AbandonedError, aabandonable
from pairbus.pairing.runtime import AEvent, acheck_cancelled, aspawn
from pairbus.runtime import AsyncTask

logger = logging.getLogger("pairbus.protection")

FIRST_RETRY = 1.0
MAX_RETRY = 60.0
CLOSE_WAIT = 1.0
UNDER_WAY = "the backlog queues are being looked up"


class Protection:
    """Makes one pair protected, with retries until it is.

    Args:
        pair: The pair.
        admin: Creates the backlog queues that are missing; None if they are expected to exist.
    """

    def __init__(self, pair: Pair, admin: ServiceBusAdministrationClient | None) -> None:
        self._pair = pair
        self._admin = admin
        self._stopped = AEvent()
        self._settled = AEvent()  # the first attempt has ended
        self._ended = AEvent()  # protected, or stopped
        self._attempts: AsyncTask | None = None
        pair.unprotected = UNDER_WAY

    async def start(self, wait: float) -> None:
        """Begin, and wait at most `wait` seconds for the first attempt to end."""
        self._attempts = aspawn(self._try_until_protected, name="pairbus protection")
        await self._settled.wait(wait)

    async def require(self, seconds: float) -> None:
        """Make the pair protected now, with one attempt.

        Raises:
            PairingError: if no backlog queue can be used, or that takes longer than `seconds`.
        """
        try:
            await aabandonable(seconds, self._protect, what="looking up the backlog queues")
        except AbandonedError as error:
            host = self._pair.secondary_host
            raise PairingError(
                f"The secondary {host} did not answer within {seconds:g} s."
            ) from error
        self._report(None)
        self._ended.set()

    def stop(self) -> None:
        """Stop trying."""
        self._stopped.set()
        self._ended.set()

    async def close(self) -> None:
        """Stop trying, and let an attempt that is under way close its connection."""
        self.stop()
        if self._attempts is not None and not self._attempts.is_done:
            await self._attempts.join(CLOSE_WAIT)

    async def wait(self) -> bool:
        """Wait until the pair is protected; False if it was closed before that."""
        await self._ended.wait()
        return not self._stopped.is_set()

    async def _try_until_protected(self) -> None:
        retry = FIRST_RETRY
        while not self._stopped.is_set():
            acheck_cancelled()
            try:
                await self._protect()
            except Exception as error:  # noqa: BLE001  # in any case, sends go to the primary
                self._report(str(error) if isinstance(error, PairingError) else describe(error))
            else:
                self._report(None)
                self._settled.set()
                self._ended.set()
                return
            self._settled.set()
            if await self._stopped.wait(retry):
                return
            retry = min(2 * retry, MAX_RETRY)

    async def _protect(self) -> None:
        """Find or create the backlog queues, and open a link to one of them.

        Raises:
            PairingError: if no backlog queue can be used.
        """
        if self._admin is not None:
            await provide_queues(self._admin, self._pair)
            self._admin = None  # they are found
        await self._open_link()
        if self._pair.timing.drains_first:
            await self._pair.replies.check()

    async def _open_link(self) -> None:
        """Open a link to the first backlog queue that exists, and close it again."""
        pair = self._pair
        missing: Exception | None = None
        for path in pair.rotation.paths:
            link = pair.backlog_link(path)
            try:
                await link.open(deadline=monotonic() + pair.timing.open_timeout)
                return
            except Exception as error:
                verdict = pair.verdict(error)
                if verdict is Verdict.REFUSED:
                    raise PairingError(
                        f"The credentials for the secondary {pair.secondary_host} cannot send to "
                        f"the backlog queue {path!r}: check the key or token, and that it has the "
                        "right Send. "
                        f"{describe(error)}"
                    ) from error
                if verdict is not Verdict.MISSING:
                    raise PairingError(
                        f"The secondary {pair.secondary_host} cannot be reached. {describe(error)}"
                    ) from error
                missing = missing or error
            finally:
                link.discard()
        raise PairingError(
            f"All backlog queues in the secondary {pair.secondary_host} are missing or disabled: "
            "create them with `pairbus pair create`, or pass secondary_admin with the right "
            f"Manage. {describe(missing)}"
        ) from missing

    def _report(self, reason: str | None) -> None:
        pair, before = self._pair, self._pair.unprotected
        pair.unprotected = reason
        if self._stopped.is_set():
            return
        if reason is not None and before in (None, UNDER_WAY):
            pair.bus.emit(events.Unprotected, reason=reason)
        elif reason is None and before not in (None, UNDER_WAY):
            pair.bus.emit(events.Protected)
