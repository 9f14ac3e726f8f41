"""The state that all senders of one paired client share: entities, rotation, events, ledger."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from azure.servicebus.aio import ServiceBusClient

from pairbus import events
from pairbus.classify import Verdict, classify
from pairbus.exceptions import OversizeError, bare, describe
from pairbus.names import backlog_label, backlog_paths
from pairbus.options import SendAvailabilityPairedNamespaceOptions
from pairbus.pairing._async.attempts import Attempts
from pairbus.pairing._async.coalescer import Sharing
from pairbus.pairing._async.entity import Entity, ping_message
from pairbus.pairing._async.host_probe import HostProbe
from pairbus.pairing._async.link import Link
from pairbus.pairing._async.reconnecting import Reconnecting
from pairbus.pairing._async.replies import Replies
from pairbus.pairing.accounting import Accounts
from pairbus.pairing.core.coalescing import Coalescing
from pairbus.pairing.core.health import Phase, SendFailed
from pairbus.pairing.core.retries import RetrySettings
from pairbus.pairing.core.rotation import Rotation
from pairbus.pairing.core.timing import Timing
from pairbus.pairing.event_bus import EventBus
from pairbus.pairing.outgoing import BACKLOG_LIMIT, exact_size, suspicious_size
from pairbus.pairing.packing import Chunk
from pairbus.pairing.runtime import AEvent, AGuard, acheck_cancelled, aspawn, wall
from pairbus.pairing.sdk import senders
from pairbus.status import BacklogQueueStatus, EntityStatus, PairStatus

if TYPE_CHECKING:
    from pairbus.envelope.sdk import SdkMessage
    from pairbus.ledger.writer import LedgerWriter


class Pair:
    """The state that all senders of a paired client share.

    Args:
        primary: The SDK client that was paired.
        secondary: The SDK client of the secondary namespace.
        primary_namespace: The primary's name in backlog paths.
        options: The options of the pair.
        client_id: The name of the paired client in status and ledger.
        ledger: Records the operations; None without a ledger.
    """

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        primary_namespace: str,
        options: SendAvailabilityPairedNamespaceOptions,
        client_id: str,
        ledger: LedgerWriter | None = None,
    ) -> None:
        self.client_id = client_id
        self.primary = primary
        self.secondary = secondary
        self.primary_namespace = primary_namespace
        self.primary_host: str = primary.fully_qualified_namespace
        self.secondary_host: str = secondary.fully_qualified_namespace
        self.timing = Timing.of(options)
        self.classify = options.classify
        self.oversize = options.oversize
        self.limit_messages(BACKLOG_LIMIT)
        self.batch_limit = BACKLOG_LIMIT  # bytes that a backlog queue takes in one send, once known
        self.ledger = ledger
        self.accounts = Accounts(ledger, self.primary_namespace, self.secondary_host)
        self.retries = RetrySettings(
            *senders.retries_of(primary),
            reopen=options.reopen,
            is_immediate=self.timing.failover_interval == 0,
        )
        self.primary_batches = senders.batch_arguments(primary)
        self.secondary_batches = senders.batch_arguments(secondary)
        self.entities: dict[str, Entity] = {}
        self.attempts = Attempts()  # pings and probes that are under way
        self.reconnecting = Reconnecting()  # calls that failed to connect to the secondary
        self.replies = Replies(self)
        self.bus = EventBus(f"{self.primary_host}>{self.secondary_host}", options.observers)
        self.options = options
        self.unprotected: str | None = None  # why the secondary cannot take messages, if so
        self.host_probe = HostProbe(
            f"the primary {self.primary_host}",
            self.timing.open_timeout,
            lambda error: self.verdict(error) is Verdict.OUTAGE,
        )
        # The backlog queues, in rotation and out of it; it is replaced under the guard.
        self.rotation = Rotation(
            tuple(backlog_paths(primary_namespace, options.backlog_queue_count))
        )
        self._guard = AGuard()
        self._probes: AEvent | None = None
        self._is_closed = False
        self._host_failure: tuple[float, Exception] | None = None
        self._coalescing: dict[tuple[str, bool], Coalescing] = {}
        self._numbers = itertools.count(-1, -1)

    def limit_messages(self, size: int) -> None:
        """Set the size of the largest message that every backlog queue takes."""
        self.message_limit = size
        self.suspicious_size = suspicious_size(size) if self.oversize != "ignore" else 1 << 60

    # -- entities

    def entity(self, name: str) -> Entity:
        """The entity of that name, whatever its case."""
        key = name.lower()
        with self._guard:
            found = self.entities.get(key)
            if found is not None:
                return found
            found = self.entities[key] = Entity(name, self)
        if self._host_failure is not None:
            failed_at, error = self._host_failure
            if monotonic() - failed_at < self.timing.open_timeout:
                found.last_error = error
                found.apply(SendFailed(describe(error)))
        return found

    def host_failed(self, error: Exception, started: float) -> None:
        """Record that the primary's host refused or did not answer while a link was being opened.

        With a failover interval of 0 this is evidence for all entities, except those to which a
        send succeeded since `started`: so an application that sends to three queues waits for only
        one timeout. With an interval each entity needs its own evidence: an idle entity sends
        nothing that would show that the host is back.
        """
        if self.timing.failover_interval > 0:
            return
        kept = bare(error)
        self._host_failure = (monotonic(), kept)
        for entity in list(self.entities.values()):
            if entity.health.phase is Phase.HEALTHY and entity.last_success < started:
                entity.last_error = kept
                entity.apply(SendFailed(describe(error)))

    def sharing(self, entity: str, *, backlog: bool = False) -> Sharing | None:
        """How sends to an entity of the primary, or to a backlog queue, are coalesced."""
        if not self.options.coalesce:
            return None
        state = self._coalescing.setdefault((entity.lower(), backlog), Coalescing())
        return Sharing(state, self._is_answer, self.accounts.list_counter(entity, backlog=backlog))

    def _is_answer(self, error: Exception) -> bool:
        return self.verdict(error) in (Verdict.REFUSED, Verdict.FULL, Verdict.MISSING)

    def next_scheduled_numbers(self, count: int) -> list[int]:
        """Numbers for messages that are scheduled in the backlog: negative and unique."""
        return list(islice(self._numbers, count))

    def primary_name(self, entity: str) -> str:
        """The name of an entity in errors: `'orders' of the primary contoso.example`."""
        return f"{entity!r} of the primary {self.primary_host}"

    def backlog_link(self, path: str, purpose: str = "", *, sharing: Sharing | None = None) -> Link:
        """A new link to a backlog queue: `backlog queue 3 of contoso-dr.example` in errors.

        Args:
            path: The queue.
            purpose: What the link is for, in front of its name in errors.
            sharing: How its sends are coalesced.
        """
        return Link(
            partial(self.secondary.get_queue_sender, path),
            f"{purpose}backlog queue {backlog_label(path)} of {self.secondary_host}",
            path,
            open_timeout=self.timing.open_timeout,
            sharing=sharing,
        )

    async def ping(self, link: Link, namespace: str, path: str) -> Exception | None:
        """Ping a queue or topic over `link`, and discard that; returns the error, if any."""
        error: Exception | None = None
        try:
            await link.send(ping_message(), deadline=monotonic() + self.timing.send_timeout)
        except Exception as failure:  # noqa: BLE001  # whatever it is, sends do not go there
            error = failure
        self.accounts.pinged(namespace, path, taken=error is None)
        link.discard()
        return error

    # -- rotation

    def use_queues(self, queues: tuple[str, ...], message_limit: int) -> None:
        """Use these backlog queues, which accept messages of up to `message_limit` bytes."""
        with self._guard:
            self.rotation = Rotation(queues)
        self.limit_messages(message_limit)

    async def remove_queue(self, path: str, error: Exception) -> None:
        """Remove a failing backlog queue from the rotation, for every sender."""
        reason = describe(error)
        cooldown = self.timing.backlog_cooldown
        with self._guard:
            before = self.rotation
            self.rotation = before.remove(path, reason, now=monotonic(), cooldown=cooldown)
            if path not in before.available:
                return  # another sender was faster
            start = self._probes is None and not self._is_closed
            if start:
                self._probes = AEvent()
            stopped = self._probes
        self.bus.emit(
            events.BacklogQueueRemoved, path, reason=reason, until=wall(monotonic() + cooldown)
        )
        if start and stopped is not None:
            aspawn(self._run_probes, stopped, name="pairbus probes")

    def restore_queue(self, path: str) -> None:
        """Put a backlog queue that works back into the rotation."""
        with self._guard:
            before = self.rotation
            self.rotation = before.restore(path)
        if path not in before.available:
            self.bus.emit(events.BacklogQueueRestored, path)

    async def _run_probes(self, stopped: AEvent) -> None:
        """Probe queues that are out of the rotation, until all are back."""
        while True:
            with self._guard:
                due = self.rotation.next_due()
                if due is None:
                    self._probes = None
                    return
            if await stopped.wait(due - monotonic()):
                return
            for path in self.rotation.due(monotonic()):
                with self.attempts.one():
                    if not stopped.is_set():
                        await self._probe(path, stopped)
                acheck_cancelled()

    async def _probe(self, path: str, stopped: AEvent) -> None:
        """Ping the queue. A link alone opens to a full queue too, and the next send would fail."""
        link = self.backlog_link(path, "probe of ")
        error = await self.ping(link, self.secondary_host, path)
        if stopped.is_set():
            return
        if error is None:
            self.restore_queue(path)
            return
        with self._guard:
            self.rotation = self.rotation.probe_failed(
                path,
                describe(error),
                now=monotonic(),
                cooldown=max(1.0, self.timing.backlog_cooldown),
            )

    # -- ledger and events

    def backlogged(
        self,
        entity: Entity,
        path: str,
        chunk: Chunk,
        *,
        is_counted: bool = False,
        is_uncertain: bool = False,
    ) -> None:
        """Record messages that a backlog queue took; `is_counted` if the ledger has the call."""
        count = len(chunk.originals)
        entity.backlogged(count, path)
        if self.ledger is not None:
            self.accounts.backlogged(path, chunk, is_counted=is_counted)
        if not self.bus.wants(events.MessageBacklogged):
            return
        self.bus.emit(
            events.MessageBacklogged,
            entity.name,
            backlog_queue=path,
            messages=count,
            size=chunk.size,
            message_ids=chunk.message_ids,
            is_uncertain=is_uncertain,
        )

    def check_oversize(self, entity: str, message: SdkMessage) -> None:
        """Warn of a message that would not fit a backlog queue, or refuse it.

        Raises:
            OversizeError: if the option `oversize` says so.
        """
        size = exact_size(message, entity)
        if size <= self.message_limit:
            return
        if self.oversize == "refuse":
            raise OversizeError(size, self.message_limit)
        self.bus.emit(events.OversizeMessage, entity, size=size, limit=self.message_limit)

    def verdict(self, error: BaseException) -> Any:
        """The verdict on `error`."""
        return classify(error, self.classify)

    def status(self, state: str, reason: str | None) -> PairStatus:
        """The state at this moment."""
        rotation = self.rotation
        out = dict(rotation.removed)
        return PairStatus(
            client_id=self.client_id,
            primary_namespace=self.primary_namespace,
            primary=self.primary_host,
            secondary=self.secondary_host,
            state=state,
            state_reason=reason,
            unprotected=self.unprotected,
            ledger_problem=self.ledger.problem if self.ledger is not None else None,
            ledger_dropped_rows=self.ledger.dropped_rows if self.ledger is not None else 0,
            entities=tuple(_entity_status(entity) for entity in list(self.entities.values())),
            backlog_queues=tuple(
                BacklogQueueStatus(
                    path=path,
                    in_rotation=path not in out,
                    reason=out[path].reason if path in out else None,
                    until=wall(out[path].until) if path in out else None,
                )
                for path in rotation.paths
            ),
            events=tuple(event.as_dict() for event in self.bus.recent),
        )

    def close(self) -> None:
        """Stop the background tasks for good."""
        for entity in list(self.entities.values()):
            entity.close()
        with self._guard:
            self._is_closed = True
            if self._probes is not None:
                self._probes.set()


def _entity_status(entity: Entity) -> EntityStatus:
    health = entity.health
    next_ping = entity.next_ping
    return EntityStatus(
        entity=entity.name,
        phase=health.phase.value,
        since=wall(health.since),
        last_error=describe(entity.last_error) or None,
        backlog_queue=entity.backlog_queue,
        next_ping=wall(next_ping) if next_ping is not None else None,
        forced=health.forced or None,
        refused=health.refused or None,
        drain=entity.drain.status(),
        counts=replace(entity.counts),
    )
