"""Sending: batches, as large as the link takes, many in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pairbus.amqp.errors import INTERNAL_ERROR, MESSAGE_SIZE_EXCEEDED, AmqpError
from pairbus.amqp.events import Disposed, Flowed
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.message import BATCH_FORMAT, BATCH_OVERHEAD, Message, Properties, join_batch
from pairbus.amqp.performatives import RCV_FIRST, SND_UNSETTLED, Accepted, Rejected, Source, Target
from pairbus.amqp.types import Symbol
from pairbus.client.errors import (
    ConnectionLostError,
    LeanError,
    LinkDetachedError,
    OperationTimeoutError,
    RejectedError,
)
from pairbus.client.links import LinkUser

if TYPE_CHECKING:
    from pairbus.client.connection import LeanConnection

_MIB = 1 << 20
_STANDARD_BATCH = 256 << 10
_ENVELOPE_ROOM = 1024  # for what the batch's envelope copies from its first message
_PARTITION_KEY = Symbol("x-opt-partition-key")
_BATCH_SIZE = "com.microsoft:max-message-batch-size"


class BatchOutcome:
    """What became of messages `start` to `start + count - 1`: `error` is None if they were taken.

    An error that is a `ConnectionLostError`, `LinkDetachedError` or `OperationTimeoutError` leaves
    open whether they were.
    """

    __slots__ = ("count", "error", "is_done", "start")

    def __init__(self, start: int, count: int) -> None:
        self.start = start
        self.count = count
        self.is_done = False
        self.error: LeanError | None = None

    @property
    def is_accepted(self) -> bool:
        """The destination confirmed them."""
        return self.is_done and self.error is None

    def conclude(self, error: LeanError | None) -> None:
        """Note the outcome; the first one counts."""
        if not self.is_done:
            self.is_done = True
            self.error = error

    def __repr__(self) -> str:
        state = "open" if not self.is_done else "accepted" if self.error is None else self.error
        return f"<BatchOutcome {self.start}+{self.count} {state}>"


class Posted:
    """Batches on their way."""

    __slots__ = ("_known", "_sender", "outcomes")

    def __init__(self, sender: LeanSender, outcomes: list[BatchOutcome]) -> None:
        self._sender = sender
        self._known = 0  # outcomes before this one are known
        self.outcomes = outcomes

    @property
    def is_done(self) -> bool:
        """All outcomes are known."""
        outcomes = self.outcomes
        while self._known < len(outcomes) and outcomes[self._known].is_done:
            self._known += 1
        return self._known == len(outcomes)

    def wait(self, timeout: float | None = None) -> list[BatchOutcome]:
        """Wait for all outcomes; what time or connection cut short says so in its error."""
        connection = self._sender.connection
        with connection.lock:
            try:
                if not connection.wait_until(lambda: self.is_done, connection.deadline(timeout)):
                    self._sender.give_up(
                        self.outcomes, OperationTimeoutError(f"sending to {self._sender.entity}")
                    )
            except ConnectionLostError as exc:
                self._sender.give_up(self.outcomes, exc)
        return self.outcomes


class LeanSender(LinkUser):
    """A sender to a queue or topic."""

    def __init__(self, connection: LeanConnection, entity: str) -> None:
        super().__init__(connection, entity)
        self._tag = 0
        self._queued: list[tuple[BatchOutcome, bytes, int]] = []
        self._open: dict[BatchOutcome, None] = {}
        self.max_message_bytes = _MIB
        """The largest single message that the link takes."""
        self.max_batch_bytes = _STANDARD_BATCH
        """The largest batch that the link takes."""

    def _attach(self) -> None:
        connection = self.connection
        self.link = connection.engine.attach_sender(
            connection.session,
            connection.new_name("sender", self.entity),
            source=Source(connection.container_id),
            target=Target(connection.endpoint.address(self.entity)),
            snd_settle_mode=SND_UNSETTLED,
            rcv_settle_mode=RCV_FIRST,
            context=self,
        )

    def on_attached(self, link: Link) -> None:
        """Note the sizes that the link takes."""
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

    # -- sending -------------------------------------------------------------------------------

    def pack(self, messages: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """How the messages go into batches that the link takes: (start, count) of each."""
        room = self.max_batch_bytes - _ENVELOPE_ROOM
        start, size = 0, 0
        for index, message in enumerate(messages):
            need = len(message) + BATCH_OVERHEAD
            if index > start and size + need > room:
                yield start, index - start
                start, size = index, 0
            size += need
        if len(messages) > start:
            yield start, len(messages) - start

    def send_batch(
        self, messages: Sequence[bytes], timeout: float | None = None
    ) -> list[BatchOutcome]:
        """Send encoded messages in as few batches as the link takes, all in flight at once.

        Gives the outcome of each batch, in order, and raises nothing that an outcome can say. A
        batch is taken or refused as a whole.
        """
        return self.post(messages).wait(timeout)

    def send_each(
        self, messages: Sequence[bytes], timeout: float | None = None
    ) -> list[BatchOutcome]:
        """Send encoded messages each by itself, all in flight at once: an outcome for each."""
        return self._post(messages, [(index, 1) for index in range(len(messages))]).wait(timeout)

    def post(self, messages: Sequence[bytes]) -> Posted:
        """Like `send_batch`, without waiting: for many senders side by side."""
        return self._post(messages, self.pack(messages))

    def _post(self, messages: Sequence[bytes], parts: Iterable[tuple[int, int]]) -> Posted:
        connection = self.connection
        outcomes: list[BatchOutcome] = []
        with connection.lock:
            try:
                self.check()
            except (ConnectionLostError, LinkDetachedError) as exc:
                outcome = BatchOutcome(0, len(messages))
                outcome.conclude(exc)
                return Posted(self, [outcome])
            for start, count in parts:
                outcome = BatchOutcome(start, count)
                outcomes.append(outcome)
                if count == 1:
                    payload, message_format = bytes(messages[start]), 0
                    limit = self.max_message_bytes
                else:
                    batch = messages[start : start + count]
                    payload = join_batch(batch, _envelope(batch[0]))
                    message_format = BATCH_FORMAT
                    limit = max(self.max_message_bytes, self.max_batch_bytes)
                if len(payload) > limit:
                    outcome.conclude(
                        RejectedError(
                            MESSAGE_SIZE_EXCEEDED,
                            f"{len(payload)} bytes are more than the {limit} that "
                            f"{self.entity} takes",
                        )
                    )
                    continue
                self._open[outcome] = None
                self._queued.append((outcome, payload, message_format))
            self._send_queued()
            try:
                connection.flush()
            except ConnectionLostError as exc:
                self.give_up(outcomes, exc)
        return Posted(self, outcomes)

    def send(self, message: bytes, timeout: float | None = None) -> None:
        """Send one encoded message; raises what went wrong."""
        (outcome,) = self.send_batch([message], timeout)
        if outcome.error is not None:
            raise outcome.error

    def give_up(self, outcomes: Sequence[BatchOutcome], error: LeanError) -> None:
        """Conclude what is open of these with the error, and send none of it any more."""
        for outcome in outcomes:
            if not outcome.is_done:
                outcome.conclude(error)
                self._open.pop(outcome, None)
        self._queued = [entry for entry in self._queued if not entry[0].is_done]

    def _send_queued(self) -> None:
        link, engine = self.link, self.connection.engine
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

    # -- called by the connection ----------------------------------------------------------------

    def on_flow(self, event: Flowed) -> None:
        """Credit came: send what waited for it."""
        self._send_queued()

    def on_outcome(self, sent: Outgoing, event: Disposed) -> None:
        """The peer took a batch, or did not."""
        outcome: BatchOutcome = sent.context
        state = event.state
        if isinstance(state, Accepted):
            outcome.conclude(None)
        elif isinstance(state, Rejected):
            outcome.conclude(RejectedError.of(state.error, INTERNAL_ERROR, "rejected"))
        elif event.settled:
            outcome.conclude(RejectedError(INTERNAL_ERROR, "given back by the peer"))
        else:
            return
        self._open.pop(outcome, None)
        if not event.settled:
            self.connection.engine.settle(sent.link, sent.id, state=state)

    def on_detached(self, link: Link, error: object) -> None:
        """The link is gone, and with it every outcome that was still to come."""
        super().on_detached(link, error)  # type: ignore[arg-type]
        if self._detached is not None:
            self.give_up(list(self._open), self._detached)


def _envelope(first: bytes) -> bytes:
    """What a batch says of itself: as the SDK does, the first message's id, session and key."""
    try:
        message = Message.parse(first)
        properties = message.properties
        annotations = message.message_annotations or {}
    except AmqpError:
        return b""  # the peer will say what is wrong with the message
    head = Message.build()
    key = annotations.get(_PARTITION_KEY)
    if key is not None:
        head = head.replace(message_annotations={_PARTITION_KEY: key})
    if properties is not None and (properties.message_id or properties.group_id):
        head = head.replace(
            properties=Properties(message_id=properties.message_id, group_id=properties.group_id)
        )
    return (head.raw_section(0x72) or b"") + (head.raw_section(0x73) or b"")
