"""Sending: batches as large as the link accepts, many in flight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pairbus.amqp.errors import INTERNAL_ERROR, MESSAGE_SIZE_EXCEEDED
from pairbus.amqp.events import Disposed, Flowed
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.message import BATCH_FORMAT, join_batch
from pairbus.amqp.performatives import (
    RCV_FIRST,
    SND_UNSETTLED,
    Accepted,
    Error,
    Rejected,
    Source,
    Target,
)
from pairbus.client._async.links import LinkUser
from pairbus.client.batches import ENVELOPE_ROOM, BatchOutcome, batch_envelope, pack
from pairbus.client.errors import (
    ClientError,
    ConnectionLostError,
    LinkDetachedError,
    OperationTimeoutError,
    RejectedError,
)

if TYPE_CHECKING:
    from pairbus.client._async.connection import BulkConnection

_MIB = 1 << 20
_STANDARD_BATCH = 256 << 10
_BATCH_SIZE = "com.microsoft:max-message-batch-size"


class Posted:
    """Batches that were sent, and their outcomes so far."""

    __slots__ = ("_known", "_sender", "outcomes")

    def __init__(self, sender: BulkSender, outcomes: list[BatchOutcome]) -> None:
        self._sender = sender
        self._known = 0  # all outcomes before this index are known
        self.outcomes = outcomes

    @property
    def is_done(self) -> bool:
        """All outcomes are known."""
        outcomes = self.outcomes
        while self._known < len(outcomes) and outcomes[self._known].is_done:
            self._known += 1
        return self._known == len(outcomes)

    async def wait(self, timeout: float | None = None) -> list[BatchOutcome]:
        """Wait for all outcomes; a timeout or lost connection becomes the error of missing ones."""
        sender, mux = self._sender, self._sender.mux
        with mux.condition:
            try:
                if not await mux.wait_until(
                    lambda: self.is_done, sender.connection.deadline(timeout)
                ):
                    sender.give_up(
                        self.outcomes, OperationTimeoutError(f"sending to {sender.entity}")
                    )
            except ConnectionLostError as exc:
                sender.give_up(self.outcomes, exc)
        return self.outcomes


class BulkSender(LinkUser):
    """A sender to a queue or topic."""

    def __init__(self, connection: BulkConnection, entity: str) -> None:
        super().__init__(connection, entity)
        self._tag = 0
        self._queued: list[tuple[BatchOutcome, bytes, int]] = []
        self._open: dict[BatchOutcome, None] = {}
        self.max_message_bytes = _MIB
        """The largest single message that the link accepts."""
        self.max_batch_bytes = _STANDARD_BATCH
        """The largest batch that the link accepts."""

    def _attach(self) -> None:
        connection = self.connection
        self.link = self.mux.engine.attach_sender(
            connection.session,
            connection.new_name("sender", self.entity),
            source=Source(connection.container_id),
            target=Target(connection.endpoint.address(self.entity)),
            snd_settle_mode=SND_UNSETTLED,
            rcv_settle_mode=RCV_FIRST,
            context=self,
        )

    def on_attached(self, link: Link) -> None:
        """Store the sizes that the link accepts."""
        super().on_attached(link)
        properties = (link.attach.properties if link.attach is not None else None) or {}
        largest = link.remote_max_message_size
        self.max_message_bytes = largest or 100 * _MIB
        batch = properties.get(_BATCH_SIZE)
        if isinstance(batch, int) and batch > 0:
            self.max_batch_bytes = batch
        elif largest == 0 or largest >= _MIB:
            self.max_batch_bytes = _MIB
        else:
            self.max_batch_bytes = min(largest, _STANDARD_BATCH)

    # -- sending

    async def send_batch(
        self, messages: Sequence[bytes], timeout: float | None = None
    ) -> list[BatchOutcome]:
        """Send encoded messages in as few batches as the link accepts, all in flight together.

        Returns the outcome of each batch, in order; errors are outcomes and are not raised. A
        batch is accepted or refused as a whole.
        """
        refused = await self._ready(messages, timeout)
        return refused or await self.post(messages).wait(timeout)

    async def send_each(
        self, messages: Sequence[bytes], timeout: float | None = None
    ) -> list[BatchOutcome]:
        """Send each encoded message by itself, all in flight together; return their outcomes."""
        refused = await self._ready(messages, timeout)
        parts = [range(index, index + 1) for index in range(len(messages))]
        return refused or await self._post(messages, parts).wait(timeout)

    async def _ready(
        self, messages: Sequence[bytes], timeout: float | None
    ) -> list[BatchOutcome] | None:
        """Attach again if the link was detached while idle; return the outcomes if that fails."""
        try:
            with self.mux.condition:
                await self.revive(self.connection.deadline(timeout))
        except ClientError as exc:
            return _all_failed(messages, exc)
        return None

    def post(self, messages: Sequence[bytes]) -> Posted:
        """Like `send_batch`, without waiting, so that many senders can send at the same time."""
        room = self.max_batch_bytes - ENVELOPE_ROOM
        return self._post(messages, pack(list(map(len, messages)), room))

    def _post(self, messages: Sequence[bytes], parts: Iterable[range]) -> Posted:
        with self.mux.condition:
            self.mux.poll()
            if self.is_transiently_detached and not self.mux.is_lost:
                self.begin_attach()  # the messages are sent when credit arrives
            try:
                self.check()
            except (ConnectionLostError, LinkDetachedError) as exc:
                return Posted(self, _all_failed(messages, exc))
            outcomes = [self._enqueue(messages, part) for part in parts]
            self._send_queued()
            try:
                self.mux.flush()
            except ConnectionLostError as exc:
                self.give_up(outcomes, exc)
        return Posted(self, outcomes)

    def _enqueue(self, messages: Sequence[bytes], part: range) -> BatchOutcome:
        outcome = BatchOutcome(part.start, len(part))
        batch = messages[part.start : part.stop]
        if len(batch) == 1:
            payload, message_format = bytes(batch[0]), 0
            limit = self.max_message_bytes
        else:
            payload = join_batch(batch, batch_envelope(batch[0]))
            message_format = BATCH_FORMAT
            limit = max(self.max_message_bytes, self.max_batch_bytes)
        if len(payload) > limit:
            text = f"{len(payload)} bytes are more than the {limit} that {self.entity} accepts"
            outcome.conclude(RejectedError(MESSAGE_SIZE_EXCEEDED, text))
        else:
            self._open[outcome] = None
            self._queued.append((outcome, payload, message_format))
        return outcome

    def give_up(self, outcomes: Sequence[BatchOutcome], error: ClientError) -> None:
        """Give the error to those without an outcome, and drop their unsent messages."""
        for outcome in outcomes:
            if not outcome.is_done:
                outcome.conclude(error)
                self._open.pop(outcome, None)
        self._queued = [entry for entry in self._queued if not entry[0].is_done]

    def _send_queued(self) -> None:
        link, engine = self.link, self.mux.engine
        queued = self._queued
        sent = 0
        while sent < len(queued) and link is not None and link.credit > 0:
            outcome, payload, message_format = queued[sent]
            sent += 1
            self._tag += 1
            engine.transfer(
                link, payload, self._tag.to_bytes(8, "big"),
                message_format=message_format, context=outcome,
            )  # fmt: skip
        if sent:
            del queued[:sent]

    # -- called by the multiplexer, with its condition held

    def on_flow(self, event: Flowed) -> None:
        """Send the queued messages that the new credit allows."""
        self._send_queued()

    def on_outcome(self, sent: Outgoing, event: Disposed) -> None:
        """The peer accepted a batch, or did not."""
        outcome: BatchOutcome = sent.context
        state = event.state
        if isinstance(state, Accepted):
            outcome.conclude(None)
        elif isinstance(state, Rejected):
            outcome.conclude(RejectedError.of(state.error, INTERNAL_ERROR, "rejected"))
        elif event.settled:
            outcome.conclude(RejectedError(INTERNAL_ERROR, "released by the peer"))
        else:
            return
        self._open.pop(outcome, None)
        if not event.settled:
            self.mux.engine.settle(sent.link, sent.id, state=state)

    def on_detached(self, link: Link, error: Error | None) -> None:
        """The link is gone: every batch without an outcome fails."""
        super().on_detached(link, error)
        if self._detached is not None:
            self.give_up(list(self._open), self._detached)


def _all_failed(messages: Sequence[bytes], error: ClientError) -> list[BatchOutcome]:
    outcome = BatchOutcome(0, len(messages))
    outcome.conclude(error)
    return [outcome]
