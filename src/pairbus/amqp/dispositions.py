"""Settlement of deliveries (part 2, section 2.6.12, and part 3, section 3.4), both ways."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pairbus.amqp.composite import Composite
from pairbus.amqp.disposition_codec import disposition_frame
from pairbus.amqp.events import Disposed, Event
from pairbus.amqp.link import Link, Outgoing, Session
from pairbus.amqp.output import OutputBuffer
from pairbus.amqp.performatives import ROLE_RECEIVER, ROLE_SENDER, Disposition
from pairbus.amqp.session import SERIAL_MASK, serial_diff


class Dispositions:
    """Reports the state of deliveries to the peer, and takes its reports."""

    __slots__ = ("_output",)

    def __init__(self, output: OutputBuffer) -> None:
        self._output = output

    def settle(
        self,
        link: Link,
        first: int,
        last: int | None = None,
        *,
        state: Composite | None = None,
        settled: bool = True,
    ) -> None:
        """Report the state of deliveries `first` to `last` of the link's session.

        A receiver reports the outcome, and with `settled=False` waits for the sender to settle. A
        sender settles the deliveries that it sent.
        """
        if last is None:
            last = first
        session = link.session
        if link.is_sender and settled:
            unsettled = session.unsettled
            if first == last:
                unsettled.pop(first, None)
            else:
                for n in range(((last - first) & SERIAL_MASK) + 1):
                    unsettled.pop((first + n) & SERIAL_MASK, None)
        role = ROLE_SENDER if link.is_sender else ROLE_RECEIVER
        self._output.write(disposition_frame(session.channel, role, first, last, settled, state))

    def settle_unknown(self, session: Session, first: int, last: int, state: Composite) -> None:
        """Sender: answer a disposition of deliveries that are not open any more."""
        self._output.write(
            disposition_frame(session.channel, ROLE_SENDER, first, last, True, state)
        )

    def forget(self, session: Session, delivery_ids: Iterable[int]) -> None:
        """Sender: drop these deliveries without a report to the peer."""
        for number in delivery_ids:
            session.unsettled.pop(number, None)

    def on_disposition(
        self, session: Session, disposition: Disposition, events: list[Event]
    ) -> None:
        """Take a disposition that the general decoder has read."""
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        self.apply(
            session, disposition.role, first, last, disposition.settled, disposition.state, events
        )

    def apply(
        self,
        session: Session,
        role: bool,
        first: int,
        last: int,
        settled: bool,
        state: Any,
        events: list[Event],
    ) -> None:
        """Take the fields of a disposition."""
        deliveries: list[Outgoing] = []
        unknown: list[tuple[int, int]] = []
        if role is ROLE_RECEIVER:
            unsettled = session.unsettled
            if first == last:
                known = unsettled.pop(first, None) if settled else unsettled.get(first)
                if known is not None:
                    events.append(Disposed(session, True, first, last, settled, state, [known], []))
                    return
                if settled:
                    return  # settled already: dispositions may cross
            else:
                for number in _numbers_in(session, first, last):
                    known = unsettled.pop(number, None) if settled else unsettled.get(number)
                    if known is not None:
                        deliveries.append(known)
            if not settled:
                unknown = _unknown_runs(session, first, last, deliveries)
        events.append(
            Disposed(
                session, role is ROLE_RECEIVER, first, last, settled, state, deliveries, unknown
            )
        )


def _numbers_in(session: Session, first: int, last: int) -> Iterable[int]:
    """Return the delivery numbers of a range, at most as many as there are unsettled ones."""
    unsettled = session.unsettled
    count = ((last - first) & SERIAL_MASK) + 1
    if count <= len(unsettled):
        return ((first + n) & SERIAL_MASK for n in range(count))
    return [number for number in unsettled if ((number - first) & SERIAL_MASK) < count]


def _unknown_runs(
    session: Session, first: int, last: int, known: list[Outgoing]
) -> list[tuple[int, int]]:
    """Return the runs of numbers from `first` to `last` that we used and that are settled."""
    end = min(serial_diff(last, first), serial_diff(session.next_delivery_id, first) - 1)
    runs: list[tuple[int, int]] = []
    position = 0
    for delivery in known:
        offset = (delivery.id - first) & SERIAL_MASK
        if offset > position:
            runs.append(((first + position) & SERIAL_MASK, (first + offset - 1) & SERIAL_MASK))
        position = offset + 1
    if position <= end:
        runs.append(((first + position) & SERIAL_MASK, (first + end) & SERIAL_MASK))
    return runs
