"""What all senders of one paired client share: both clients, entities, rotation, events, ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from azure.servicebus.aio import ServiceBusClient

from pairbus import events
from pairbus.classify import classify
from pairbus.exceptions import OversizeError, describe
from pairbus.options import Oversize
from pairbus.pairing._async.entity import Entity, ping_message, wall
from pairbus.pairing._async.link import Link
from pairbus.pairing.core.rotation import Rotation
from pairbus.pairing.event_bus import Hub
from pairbus.pairing.outgoing import BACKLOG_LIMIT, Chunk, Outgoing, exact_size, suspicious_size
from pairbus.pairing.runtime import AEvent, AGuard, aspawn
from pairbus.pairing.sdk import internals as _sdk
from pairbus.status import BacklogQueueStatus, EntityStatus, PairStatus

if TYPE_CHECKING:
    from pairbus.envelope.aliases import SdkMessage
    from pairbus.ledger.writer import LedgerWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of the options, all in seconds."""

    failover_interval: float
    ping_primary_interval: float
    send_timeout: float
    backlog_cooldown: float


class Pair:
    """The heart of a paired client."""

    def __init__(
        self,
        *,
        client_id: str,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        primary_namespace: str,
        queues: tuple[str, ...],
        timing: Timing,
        hub: Hub,
        rule: Callable[[BaseException], Any] | None,
        oversize: Oversize,
        message_limit: int,
        ledger: LedgerWriter | None,
    ) -> None:
        self.client_id = client_id
        self.primary = primary
        self.secondary = secondary
        self.primary_namespace = primary_namespace
        self.timing = timing
        self.hub = hub
        self.classify = rule
        self.oversize = oversize
        self.limit_messages(message_limit)
        self.batch_limit = BACKLOG_LIMIT  # what a backlog queue takes in one send, once known
        self.ledger = ledger
        self.retries = _sdk.retries_of(primary)
        self.entities: dict[str, Entity] = {}
        self.primary_host: str = primary.fully_qualified_namespace
        self.secondary_host: str = secondary.fully_qualified_namespace
        self._rotation = Rotation(queues)
        self._guard = AGuard()
        self._probes: AEvent | None = None
        self._is_closed = False
        self._scheduled = 0
        self._numbers = threading.Lock()

    def limit_messages(self, size: int) -> None:
        """Say how large a message may be in every backlog queue."""
        self.message_limit = size
        self.suspicious_size = suspicious_size(size) if self.oversize != "ignore" else 1 << 60

    # -- entities

    def entity(self, name: str) -> Entity:
        """The entity of that name, whatever its case."""
        key = name.lower()
        with self._guard:
            found = self.entities.get(key)
            if found is None:
                found = self.entities[key] = Entity(name, self)
            return found

    def next_scheduled_numbers(self, count: int) -> list[int]:
        """Numbers for messages that are scheduled in the backlog: negative, never twice."""
        with self._numbers:
            first = self._scheduled + 1
            self._scheduled += count
        return [-number for number in range(first, first + count)]

    # -- rotation

    @property
    def rotation(self) -> Rotation:
        """The backlog queues, in rotation and out of it, at this moment."""
        return self._rotation

    async def remove_queue(self, path: str, error: Exception) -> None:
        """Remove a failing backlog queue from the rotation, for every sender."""
        reason = describe(error, "")
        cooldown = self.timing.backlog_cooldown
        with self._guard:
            before = self._rotation
            self._rotation = before.remove(path, reason, now=monotonic(), cooldown=cooldown)
            if path not in before.available:
                return  # another sender was faster
            start = self._probes is None and not self._is_closed
            if start:
                self._probes = AEvent()
            stopped = self._probes
        self.hub.emit(
            events.BacklogQueueRemoved, path, reason=reason, until=wall(monotonic() + cooldown)
        )
        if start and stopped is not None:
            aspawn(self._run_probes, stopped, name="pairbus probes")

    def restore_queue(self, path: str) -> None:
        """Put a backlog queue that works back into the rotation."""
        with self._guard:
            before = self._rotation
            self._rotation = before.restore(path)
        if path not in before.available:
            self.hub.emit(events.BacklogQueueRestored, path)

    async def _run_probes(self, stopped: AEvent) -> None:
        """Probe queues that are out of the rotation, until all are back."""
        while True:
            with self._guard:
                due = self._rotation.next_due()
                if due is None:
                    self._probes = None
                    return
            if await stopped.wait(due - monotonic()):
                return
            for path in self._rotation.due(monotonic()):
                await self._probe(path, stopped)

    async def _probe(self, path: str, stopped: AEvent) -> None:
        """Ping the queue. A link alone opens to a full queue too, and the next send would fail."""
        link = Link(lambda: self.secondary.get_queue_sender(path), f"probe of {path}")
        error: Exception | None = None
        try:
            await link.send(ping_message(), deadline=monotonic() + self.timing.send_timeout)
        except Exception as failure:  # noqa: BLE001  # it stays out, whatever it is
            error = failure
        self.count_ping(self.secondary_host, path, taken=error is None)
        link.discard()
        if stopped.is_set():
            return
        if error is None:
            self.restore_queue(path)
            return
        with self._guard:
            self._rotation = self._rotation.probe_failed(
                path,
                describe(error, ""),
                now=monotonic(),
                cooldown=max(1.0, self.timing.backlog_cooldown),
            )

    # -- what is counted and told

    def count_sent(self, entity: str, outgoing: Outgoing) -> None:
        """Note a send that the primary took."""
        if self.ledger is not None:
            self.ledger.count(
                self.primary_namespace,
                entity,
                "send_primary",
                "send",
                messages=outgoing.count,
                size=outgoing.size,
                billable=outgoing.billable,
            )

    def count_scheduled(self, entity: str, outgoing: Outgoing) -> None:
        """Note messages that the primary scheduled."""
        if self.ledger is not None:
            self.ledger.count(
                self.primary_namespace,
                entity,
                "send_primary",
                "schedule",
                messages=outgoing.count,
                size=outgoing.size,
                billable=outgoing.billable,
            )

    def count_cancelled(self, entity: str) -> None:
        """Note a call that cancelled scheduled messages; it carries none, and is one operation."""
        if self.ledger is not None:
            self.ledger.count(
                self.primary_namespace, entity, "send_primary", "cancel", messages=0, billable=1
            )

    def count_ping(self, namespace: str, entity: str, *, taken: bool) -> None:
        """Note a ping. One that was not taken is told apart: a call with no message.

        Whether the service charges such a call is a switch of the cost model.
        """
        if self.ledger is None:
            return
        if taken:
            self.ledger.count(namespace, entity, "ping", "send", messages=1, size=128)
        else:
            self.ledger.count(namespace, entity, "ping", "send-failed", messages=0, billable=0)

    def backlogged(self, entity: Entity, path: str, chunk: Chunk) -> None:
        """Note messages that a backlog queue took."""
        count = len(chunk.originals)
        entity.backlogged(count, path)
        if self.ledger is not None:
            self.ledger.count(
                self.secondary_host,
                path,
                "send_backlog",
                "send",
                messages=count,
                size=chunk.size,
                billable=chunk.billable,
            )
            self.ledger.backlogged(chunk.rows(path))
        if not self.hub.wants(events.MessageBacklogged):
            return
        self.hub.emit(
            events.MessageBacklogged,
            entity.name,
            backlog_queue=path,
            messages=count,
            size=chunk.size,
            message_ids=chunk.message_ids,
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
        self.hub.emit(events.OversizeMessage, entity, size=size, limit=self.message_limit)

    def verdict(self, error: BaseException) -> Any:
        """What `error` means."""
        return classify(error, self.classify)

    def status(self, state: str, reason: str | None) -> PairStatus:
        """Everything that is known, at this moment."""
        rotation = self._rotation
        out = dict(rotation.removed)
        return PairStatus(
            client_id=self.client_id,
            primary_namespace=self.primary_namespace,
            primary=self.primary_host,
            secondary=self.secondary_host,
            state=state,
            state_reason=reason,
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
            events=tuple(event.as_dict() for event in list(self.hub.recent)),
        )

    def after_fork(self, client_id: str) -> None:
        """Go on in a child process, as a client of its own."""
        self.client_id = client_id
        self._guard = AGuard()
        self._numbers = threading.Lock()
        if self.ledger is not None:
            self.ledger.after_fork(client_id)
        for entity in list(self.entities.values()):
            entity.after_fork()
        self._probes = AEvent() if self._rotation.removed else None
        if self._probes is not None:
            aspawn(self._run_probes, self._probes, name="pairbus probes")

    def stay_behind(self, client_id: str) -> None:
        """Do nothing any more in a child process; what was noted is the parent's to write."""
        self._guard = AGuard()
        self._numbers = threading.Lock()
        self.hub.on_transition = None
        if self.ledger is not None:
            self.ledger.after_fork(client_id)
        for entity in list(self.entities.values()):
            entity.stay_behind()
        self._is_closed, self._probes = True, None

    def close(self) -> None:
        """Stop what runs in the background, and start nothing any more."""
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
        last_error=describe(entity.last_error, "") or None,
        backlog_queue=entity.backlog_queue,
        next_ping=wall(next_ping) if next_ping is not None else None,
        forced=health.forced or None,
        refused=health.refused or None,
        counts=replace(entity.counts),
    )
