# generated from src/pairbus/pairing/_async/backlog_route.py by tools/gen_unasync.py; edit that one
"""The way around the primary: one sender's backlog queue, and the next one if that fails."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus import events
from pairbus.classify import Verdict
from pairbus.exceptions import PairUnavailableError, PartlySentError, bare, describe
from pairbus.pairing._sync.entity import Entity
from pairbus.pairing._sync.link import Link
from pairbus.pairing._sync.pair import Pair
from pairbus.pairing.outgoing import Outgoing, pack
from pairbus.pairing.runtime import Guard, sleep, spawn
from pairbus.pairing.sdk import internals as _sdk

if TYPE_CHECKING:
    from pairbus.pairing._sync.client import PairedClient

BUSY_BACKOFF = 0.8


class Detour:
    """Where one sender's messages go while its entity is failed over.

    Args:
        client: The paired client, which knows whether the secondary is open.
        pair: What the senders of the client share.
        entity: Whose messages they are.
        name: The entity's name, as the application wrote it.
    """

    def __init__(
        self,
        client: PairedClient,
        pair: Pair,
        entity: Entity,
        name: str,
    ) -> None:
        self.current: Link | None = None
        self._client = client
        self._pair = pair
        self._entity = entity
        self._name = name
        self._is_left = False
        self._guard = Guard()

    def leave(self) -> Link | None:
        """Give up the link for good, for the caller to close."""
        with self._guard:
            self._is_left = True
            link, self.current = self.current, None
            return link

    def after_fork(self) -> None:
        """Start afresh in a child process, with the same queue."""
        self._guard = Guard()
        if self.current is not None:
            self.current.after_fork()

    def warm_up(self) -> None:
        """Open the way while the primary is suspected: it takes half a second."""
        if self.current is None or not self.current.is_open:
            spawn(self._open, name=f"pairbus warm-up {self._name}")

    def _open(self) -> None:
        try:
            link = self._link()
            if link is not None:
                link.open(deadline=monotonic() + self._pair.timing.send_timeout)
        except Exception:  # noqa: BLE001  # the send that needs it finds out and tells
            return

    def _link(self) -> Link | None:
        """The link to this sender's backlog queue: picked at random, kept while in rotation."""
        with self._guard:
            self._client._check_usable()  # noqa: SLF001
            if self._is_left:  # what is opened after the close, nobody would close
                raise ValueError(_sdk.SHUT_DOWN)
            link = self.current
            path = self._pair.pick_queue(link.path if link is not None else None)
            if path is None:
                return None
            if link is None or link.path != path:
                if link is not None:
                    link.discard()
                make = partial(self._pair.secondary.get_queue_sender, path)
                link = self.current = Link(make, f"backlog queue {path}", path)
            return link

    def take(self, outgoing: Outgoing, budget: float, cause: BaseException | None) -> None:
        """Put the messages into a backlog queue."""
        entity, pair = self._entity, self._pair
        if entity.health.refused and entity.refusal is not None:
            raise bare(entity.refusal)
        self._client._check_usable(secondary=True)  # noqa: SLF001
        chunks = pack(outgoing, self._name, pair.batch_limit)
        taken: list[Any] = []
        for position, chunk in enumerate(chunks):
            try:
                path = self._to_backlog(chunk.what, budget, cause)
            except Exception as error:
                if not taken:
                    raise
                left = [item for later in chunks[position:] for item in later.originals]
                raise PartlySentError(self._name, taken, left, error) from error
            taken += chunk.originals
            pair.backlogged(entity, path, chunk)

    def _to_backlog(self, what: Any, budget: float, cause: BaseException | None) -> str:
        """Send to this sender's backlog queue, or to the next one; return the one that took it."""
        pair = self._pair
        started = monotonic()
        waited = BUSY_BACKOFF
        failure: Exception | None = None
        failures = 0
        reopened: Link | None = None
        while True:
            link = self._link()
            if link is None:
                self._unavailable(cause, failure)
            if failures > 1 and monotonic() - started >= budget:
                # A namespace that is silent as a whole: two queues had their full deadline.
                self._unavailable(cause, failure)
            try:
                link.send(what, deadline=monotonic() + budget)
            except _sdk.ShutDownError:
                self._client._closed_behind(primary=False)  # noqa: SLF001
            except _sdk.UnwantedError:
                continue  # another thread has found this queue failing: take the next
            except Exception as error:
                verdict = pair.verdict(error)
                if verdict is Verdict.REFUSED:
                    raise
                if verdict is Verdict.REOPEN and reopened is not link:
                    reopened = link
                    continue
                if verdict is Verdict.BUSY:
                    # Throttled: it works, and wants less. Waited out, up to the deadline.
                    if monotonic() + waited - started >= budget:
                        raise
                    sleep(waited)
                    waited *= 2
                    continue
                failure = error
                failures += 1
                pair.remove_queue(link.path, error)
            else:
                if link.batch_limit:
                    pair.batch_limit = link.batch_limit
                return link.path

    def _unavailable(self, cause: BaseException | None, failure: Exception | None) -> NoReturn:
        pair, entity = self._pair, self._entity
        primary = cause or entity.last_error
        if failure is None:
            failure = OperationTimeoutError(
                message=f"No backlog queue is in rotation. {pair.why_none()}"
            )
        pair.hub.emit(
            events.PairUnavailable,
            entity.name,
            primary=describe(primary, "failed over"),
            secondary=describe(failure, ""),
        )
        raise PairUnavailableError(entity.name, primary, failure) from failure
