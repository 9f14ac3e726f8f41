# generated from src/pairbus/syphon/_async/fetching.py by tools/gen_unasync.py; edit that one
"""Receive deferred messages by their sequence numbers, in order.

The service answers a request for several numbers with all of the messages, or with none of them. If
it refuses, the queue is browsed to find out which are gone, which are not deferred, and which must
be locked by another receiver. Reading stops at the first message that exists but cannot be received
now, so that no newer message overtakes it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from pairbus.client._sync.management import BulkManagement
from pairbus.client.errors import SERVER_BUSY, ClientError, RequestFailedError

__all__ = ["DEFERRED", "Fetched", "fetch"]

log = logging.getLogger("pairbus.syphon")

NUMBERS = 50  # in one request: the answer is one AMQP message
PEEK = 250
DEFERRED = 1  # the value of x-opt-message-state

Abandon = Callable[[Sequence[bytes]], bool]


@dataclass(slots=True)
class Fetched:
    """The result of a request for deferred messages.

    Args:
        messages: lock token and payload of each message, in the order of the numbers.
        undeferred: numbers of messages that are gone, or are not deferred.
        requests: requests that received nothing, and browsing.
        is_blocked: a message is locked, or is not deferred and must be read first.
        is_busy: the secondary is throttling.
        broke_off: messages that did not arrive may be locked.
    """

    messages: list[tuple[bytes | None, bytes]] = field(default_factory=list)
    undeferred: list[int] = field(default_factory=list)
    requests: int = 0
    is_blocked: bool = False
    is_busy: bool = False
    broke_off: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing prevents the next request."""
        return not (self.is_blocked or self.is_busy or self.broke_off)


def fetch(management: BulkManagement, abandon: Abandon, numbers: Sequence[int]) -> Fetched:
    """Receive deferred messages of one queue; the requests are sent concurrently.

    Args:
        management: of the queue.
        abandon: abandons locks, in this order; a deferred message stays deferred.
        numbers: sequence numbers, ascending.
    """
    fetched = Fetched()
    groups = [list(numbers[i : i + NUMBERS]) for i in range(0, len(numbers), NUMBERS)]
    try:
        answers = management.receive_deferred_each(groups)
    except ClientError as exc:
        _break_off(management, fetched, exc)
        return fetched
    for group, (got, error) in zip(groups, answers, strict=True):
        try:
            if not fetched.is_complete:  # these would overtake the messages that are missing
                tokens = [one.tag for one in reversed(got)]
                if tokens and not abandon(tokens):
                    fetched.broke_off = True
            elif error is None:
                fetched.messages += [(one.tag, one.payload) for one in got]
                missing = sorted({*group} - {one.sequence_number for one in got})
                if missing:
                    _explain(management, missing, fetched)
            elif str(error.condition) == SERVER_BUSY:
                fetched.is_busy = True
            elif isinstance(error, RequestFailedError):
                _explain(management, group, fetched)
            else:
                raise error
        except ClientError as exc:
            _break_off(management, fetched, exc)
    return fetched


def _break_off(management: BulkManagement, fetched: Fetched, error: ClientError) -> None:
    log.warning("%s: deferred messages not received: %s", management.entity, error.condition)
    fetched.broke_off = True


def _explain(management: BulkManagement, group: list[int], fetched: Fetched) -> None:
    """Find out why a request was refused, and receive the messages that are available."""
    fetched.requests += 1
    states: dict[int, int] = {}
    position = group[0]
    while position <= group[-1]:
        page = management.peek(position, PEEK)
        fetched.requests += 1
        states |= {one.sequence_number: int(one.facts.get("state") or 0) for one in page}
        if not page:
            break
        position = page[-1].sequence_number + 1
    wanted: list[int] = []
    for number in group:
        if states.get(number) == DEFERRED:
            wanted.append(number)
            continue
        fetched.undeferred.append(number)
        if number in states:  # the next read of the queue must receive it before newer ones
            fetched.is_blocked = True
            break
    if not wanted:
        return
    try:
        got = management.receive_deferred(wanted)
        fetched.messages += [(one.tag, one.payload) for one in got]
    except RequestFailedError:
        fetched.requests += 1
        fetched.is_blocked = True
