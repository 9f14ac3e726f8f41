"""Routes messages: into a queue, to subscriptions, to a forwarding target, to dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

from pairbus.amqp.errors import ProtocolError
from pairbus.broker.entities.contents import (
    View,
    message_id_of,
    partition_key_of,
    set_properties,
)
from pairbus.broker.entities.context import Context
from pairbus.broker.entities.counters import Kind
from pairbus.broker.entities.entity import Entity, QueueEntity, TopicEntity
from pairbus.broker.entities.errors import (
    ArgumentError,
    BrokerError,
    EntityDisabledError,
    MessageSizeExceededError,
    NotAllowedError,
    QuotaExceededError,
)
from pairbus.broker.entities.messages import (
    ACTIVE,
    NEVER,
    IncomingMessage,
    StoredMessage,
)
from pairbus.broker.entities.queue import SERVE, Queue
from pairbus.broker.filters.values import FilterError
from pairbus.names import BILLING_STEP, PING_CONTENT_TYPE, billable

MAX_HOPS = 4
MAX_ID_LENGTH = 128
RETRY = 1000  # milliseconds until a refused forward is retried
RETRY_ASIDE = 60_000  # the same, if the target refused this particular message

Find = Callable[[str], "Entity | None"]


class Router:
    """Moves messages into and between the entities of one namespace."""

    def __init__(self, context: Context, find: Find) -> None:
        self._context = context
        self._find = find
        context.router = self

    # --- arrival ----------------------------------------------------------------------------------

    def accept(
        self, entity: Entity, incoming: Sequence[IncomingMessage], now: int, kind: Kind = "send"
    ) -> list[StoredMessage]:
        """Accept messages for an entity, all or none; returns those that it stores itself.

        Raises:
            BrokerError: the entity is disabled or full, or a message does not fit it.
        """
        pings, size, units = self.check(entity, incoming)
        entity.main.accessed = now
        count = len(incoming)
        if pings:
            ping_sizes = [m.size for m in incoming if m.content_type == PING_CONTENT_TYPE]
            ping_size, ping_units = sum(ping_sizes), sum(map(billable, ping_sizes))
            incoming = [m for m in incoming if m.content_type != PING_CONTENT_TYPE]
            self._context.operations.add(entity.path, "ping", 1, pings, ping_size, ping_units)
            count -= pings
            size -= ping_size
            units -= ping_units
        if count:
            self._context.operations.add(entity.path, kind, 1, count, size, units)
        if entity.history is not None:
            is_new = entity.history.is_new
            incoming = [m for m in incoming if is_new(m, now)]
        if type(entity) is QueueEntity:
            return entity.main.store.stage(incoming, now)
        return self._place(entity, incoming, now)

    def check(self, entity: Entity, incoming: Sequence[IncomingMessage]) -> tuple[int, int, int]:
        """Refuse messages that the entity cannot accept.

        Returns:
            The number of pings among the messages, the bytes and the billable operations of all.
        """
        settings = entity.settings
        if not settings.can_send:
            raise EntityDisabledError(
                f"Messaging entity '{entity.path}' is currently disabled for sending."
            )
        limit = settings.max_message_size
        needs_session = settings.requires_session
        total = pings = 0
        units = len(incoming)
        for message in incoming:
            size = message.size
            total += size
            if size > BILLING_STEP:
                units += billable(size) - 1
                if size > limit:
                    raise MessageSizeExceededError(
                        f"The message of {size} bytes exceeds the limit of {limit} bytes of "
                        f"'{entity.path}'."
                    )
            session_id = message.session_id
            if needs_session and session_id is None:
                raise NotAllowedError(
                    f"The SessionId was not set on a message, and it cannot be sent to '"
                    f"{entity.path}': entities that require sessions take only messages with one."
                )
            if message.content_type == PING_CONTENT_TYPE:
                pings += 1
            message_id = message.message_id
            partition_key = message.partition_key
            if (
                (message_id is not None and len(message_id) > MAX_ID_LENGTH)
                or (session_id is not None and len(session_id) > MAX_ID_LENGTH)
                or (partition_key is not None and len(partition_key) > MAX_ID_LENGTH)
            ):
                raise ArgumentError(
                    "MessageId, SessionId and PartitionKey have at most "
                    f"{MAX_ID_LENGTH} characters."
                )
        if settings.max_size != NEVER and entity.weight + total > settings.max_size:
            raise QuotaExceededError(
                f"The maximum entity size of '{entity.path}' has been reached or exceeded: "
                f"{entity.weight} of {settings.max_size} bytes."
            )
        return pings, total, units

    def _place(
        self, entity: Entity, incoming: Sequence[IncomingMessage], now: int, source: str = ""
    ) -> list[StoredMessage]:
        if isinstance(entity, QueueEntity):
            return entity.main.store.stage(incoming, now, source=source)
        kept: list[StoredMessage] = []
        copies: dict[QueueEntity, list[IncomingMessage]] = {}
        for message in incoming:
            if message.scheduled is not None and message.scheduled > now:
                kept += entity.main.store.stage([message], now, source=source)
            else:
                self._fan_out(entity, message, now, copies)
        for subscription, messages in copies.items():
            subscription.main.store.stage(messages, now, source=source)
        return kept

    def _fan_out(
        self,
        topic: TopicEntity,
        message: IncomingMessage,
        now: int,
        copies: dict[QueueEntity, list[IncomingMessage]],
    ) -> None:
        """Add the copies of a message for each subscription to *copies*."""
        number = topic.main.store.next_number()
        if not message.origin:
            message.origin = number
        default_ttl = topic.settings.default_ttl
        if default_ttl != NEVER and (message.ttl is None or message.ttl > default_ttl):
            message.ttl = default_ttl
        view = View(message, now, number)
        for subscription in topic.subscriptions.values():
            try:
                found = subscription.rules.copies(message, view)
            except (FilterError, ProtocolError) as error:
                if subscription.settings.dead_letter_on_filter_error:
                    self._dead_letter_copy(subscription, message, str(error), now)
                continue
            if subscription.settings.requires_session:
                found = [one for one in found if one.session_id is not None]
            if found:
                copies.setdefault(subscription, []).extend(found)

    def _dead_letter_copy(
        self,
        subscription: QueueEntity,
        message: IncomingMessage,
        problem: str,
        now: int,
    ) -> None:
        """Dead-letter a message in a subscription, because a rule failed on it."""
        dead = copy(message)
        dead.bare = _with_reason(message.bare, "FilterEvaluationException", problem)
        dead.size += len(dead.bare) - len(message.bare)
        dead.ttl = None
        store = subscription.dead.store
        store.last_number = subscription.main.store.next_number() - 1  # they share the numbers
        store.stage([dead], now)

    # --- forwarding -------------------------------------------------------------------------------

    def activate(self, queue: Queue, scheduled: list[StoredMessage], now: int) -> None:
        """Enqueue scheduled messages that are due, as if they were sent now."""
        queue.store.fetch(scheduled)
        owner = queue.owner
        assert owner is not None  # only an entity's own queue keeps scheduled messages
        queue.accessed = now
        incoming = [_as_incoming(message) for message in scheduled]
        for message in scheduled:
            queue.store.remove(message)
        self._place(owner, incoming, now)

    def pump(self, queue: Queue, now: int) -> None:
        """Forward the ready messages of a queue to the entity that its description names."""
        target_path = queue.settings.forward_to
        if target_path is None or queue.retry_at != NEVER:
            return
        target = self._find(target_path)
        if target is None and queue.is_dead_letter:
            if queue.store.ready:  # dead letters stay until the target exists
                queue.retry(now + RETRY)
            return
        moved: list[StoredMessage] = []
        while len(moved) < SERVE:
            message = queue.store.pop_ready()
            if message is None:
                break
            if message.expires_at <= now:
                queue.expire(message, now)
                continue
            moved.append(message)
        if not moved:
            return
        queue.store.fetch(moved)
        staying: list[StoredMessage] = []
        for index, message in enumerate(moved):
            try:
                if not self._forward(queue, message, target, target_path, now):
                    queue.set_aside(message, now + RETRY_ASIDE)
            except (EntityDisabledError, QuotaExceededError):
                # The target may recover: keep the order and retry.
                staying += moved[index:]
                break
        for message in staying:
            queue.store.put_back(message)
        if staying:
            queue.retry(now + RETRY)
        elif len(moved) == SERVE:
            queue.retry(now)

    def _forward(
        self,
        queue: Queue,
        message: StoredMessage,
        target: Entity | None,
        target_path: str,
        now: int,
    ) -> bool:
        """Forward one message, or dead-letter it; False if it must stay where it is."""
        forwarded = _as_incoming(message)
        forwarded.hops = message.hops + 1
        forwarded.origin = message.enqueued_sequence_number
        problem: tuple[str, str] | None = None
        if target is None:
            problem = (
                "ForwardToEntityNotFound",
                f"The destination '{target_path}' does not exist.",
            )
        elif forwarded.hops > MAX_HOPS:
            problem = ("MaxTransferHopCountExceeded", f"Forwarded more than {MAX_HOPS} times.")
        else:
            try:
                self.check(target, [forwarded])
            except (EntityDisabledError, QuotaExceededError):
                raise
            except BrokerError as error:
                problem = (type(error).__name__, error.description)
        if problem is not None:
            if queue.is_dead_letter:
                return False  # a dead letter cannot be dead-lettered
            self.dead_letter(queue, message, *problem, now, transfer=True)
            return True
        assert target is not None  # otherwise there is a problem
        source = message.dead_letter_source or ""
        if queue.is_dead_letter and queue.owner is not None:
            source = queue.owner.path
        queue.store.remove(message)
        if target.history is not None:
            forwarded.message_id = message_id_of(forwarded.bare)
        if target.history is None or target.history.is_new(forwarded, now):
            self._place(target, [forwarded], now, source)
        target.main.accessed = now
        return True

    def dead_letter(
        self,
        queue: Queue,
        message: StoredMessage,
        reason: str | None,
        description: str | None,
        now: int,
        *,
        transfer: bool = False,
    ) -> None:
        """Move a message to the dead letters of its entity; it keeps its number."""
        owner = queue.owner
        assert isinstance(owner, QueueEntity)  # topics store only scheduled messages
        queue.store.fetch([message])
        assert message.bare is not None  # fetched in the line above
        dead = copy(message)
        dead.bare = _with_reason(message.bare, reason, description)
        dead.size += len(dead.bare) - len(message.bare)
        dead.state = ACTIVE
        dead.expires_at = NEVER
        queue.store.remove(message)
        (owner.transfer_dead if transfer else owner.dead).store.adopt(dead)


def _with_reason(bare: bytes, reason: str | None, description: str | None) -> bytes:
    """A bare message with the properties that say why it is dead-lettered."""
    properties = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    given = {name: value for name, value in properties.items() if value is not None}
    return set_properties(bare, given) if given else bare


def _as_incoming(message: StoredMessage) -> IncomingMessage:
    """A stored message as an incoming one, to be accepted by another entity."""
    assert message.bare is not None  # callers fetch first
    annotations = message.annotations or b""
    return IncomingMessage(
        message.bare,
        annotations=annotations,
        size=message.size,
        session_id=message.session_id,
        partition_key=partition_key_of(annotations),
        ttl=message.ttl,
        durable=message.durable,
        priority=message.priority,
        hops=message.hops,
    )
