"""Dead letters of a backlog queue: find them, and put them back to be forwarded again.

Messages are moved with the bulk client, byte for byte: the SDK would not keep the AMQP types of the
aliases, and the syphon would refuse the message again.

Nothing is lost if this is interrupted: a dead letter is removed only after the backlog queue has
confirmed its copy. An interruption in between leaves both, with the same message id.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairbus.envelope.cutting import APPLICATION, entries, make_map, sections
from pairbus.envelope.encoded import open_message
from pairbus.envelope.fields import peek_aliases
from pairbus.monitoring.endpoints import Endpoint

if TYPE_CHECKING:
    from pairbus.client import BulkConnection, BulkReceiver, Received

__all__ = ["DeadLetter", "find", "resubmit", "select"]

PAGE = 100
PAGE_BYTES = 4 << 20
_REASON, _DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
_ADDED = frozenset({_REASON.encode(), _DESCRIPTION.encode()})


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter of a backlog queue."""

    queue: str
    sequence_number: int
    message_id: str | None
    destination: str | None
    reason: str | None


def find(secondary: Endpoint, paths: Sequence[str]) -> list[DeadLetter]:
    """Return the dead letters of these backlog queues, without touching them."""
    with secondary.bulk_connection() as connection:
        return [
            _letter(path, one)
            for path in paths
            for page in connection.management(_dead_letter_path(path)).peek_pages(PAGE)
            for one in page
        ]


def select(
    letters: Sequence[DeadLetter],
    *,
    destinations: Collection[str] = (),
    reasons: Collection[str] = (),
    sequence_numbers: Collection[int] = (),
) -> list[DeadLetter]:
    """Return the letters that match each of the criteria that is given, without regard to case."""
    wanted_destinations = {name.lower() for name in destinations}
    wanted_reasons = {name.lower() for name in reasons}
    return [
        letter
        for letter in letters
        if (not destinations or (letter.destination or "").lower() in wanted_destinations)
        and (not reasons or (letter.reason or "").lower() in wanted_reasons)
        and (not sequence_numbers or letter.sequence_number in sequence_numbers)
    ]


def resubmit(secondary: Endpoint, path: str, wanted: Collection[int]) -> list[int]:
    """Put dead letters back into their backlog queue.

    Args:
        secondary: The namespace.
        path: The backlog queue.
        wanted: Sequence numbers in its dead-letter queue.

    Returns:
        The sequence numbers of those that were put back. The others were removed, or are locked.
    """
    with secondary.bulk_connection() as connection:
        receiver = connection.receiver(_dead_letter_path(path))
        # Others stay locked until the end, so that the next page has those behind them.
        locked: dict[int, Received] = {}
        try:
            return _move(connection, receiver, path, set(wanted), locked)
        finally:
            receiver.release(list(locked.values()))


def _move(
    connection: "BulkConnection",
    receiver: "BulkReceiver",
    path: str,
    wanted: set[int],
    locked: "dict[int, Received]",
) -> list[int]:
    done: list[int] = []
    while wanted - set(done):
        page = {one.sequence_number or 0: one for one in receiver.receive_now(PAGE, PAGE_BYTES)}
        if page.keys() <= locked.keys():
            break  # the end; or the locks of the first ones expired, and they come again
        locked |= page
        chosen = [one for number, one in page.items() if number in wanted]
        if not chosen:
            continue
        outcomes = connection.sender(path).send_batch([_cleaned(one.payload) for one in chosen])
        for outcome in outcomes:
            taken = chosen[outcome.start : outcome.start + outcome.count]
            if outcome.is_accepted:
                receiver.complete(taken)
                numbers = [one.sequence_number or 0 for one in taken]
                done += numbers
                for number in numbers:
                    del locked[number]
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
    return done


def _letter(path: str, received: "Received") -> DeadLetter:
    message = received.message
    values = message.application_properties or {}
    message_id = message.properties.message_id if message.properties is not None else None
    reason = values.get(_REASON)
    return DeadLetter(
        queue=path,
        sequence_number=received.sequence_number or 0,
        message_id=None if message_id is None else str(message_id),
        destination=peek_aliases(values)[0],
        reason=None if reason is None else str(reason),
    )


def _dead_letter_path(path: str) -> str:
    return f"{path}/$DeadLetterQueue"


def _cleaned(payload: bytes) -> bytes:
    """The message as it was in the backlog queue, without the broker's additions."""
    message = open_message(payload, aliases=False).message
    found, _ = sections(message)
    place = found.get(APPLICATION)
    if place is None:
        return message
    start, end = place
    kept = [message[pos:after] for key, pos, _, after in entries(message, start, end)
            if key not in _ADDED]  # fmt: skip
    return message[: start - 3] + make_map(APPLICATION, kept) + message[end:]
