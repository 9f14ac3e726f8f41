"""How the backlog queues of a pair should be set up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from pairbus.drill.facts import Entity, Kind, Properties, Side
from pairbus.drill.findings import Finding, critical, ok, warning
from pairbus.drill.settings import Expected
from pairbus.drill.wording import (
    join_some,
    kind_of,
    lacks_right,
    megabytes,
    merge,
    refused_key,
    throttled,
    time_of,
)
from pairbus.monitoring.formatting import duration

LOCK = timedelta(minutes=1)
DELIVERIES = 1000  # below this, returns of held messages may use the delivery count up
FULL = 0.95


def judge_rights(backlog: Sequence[Entity], side: Side) -> Iterator[Finding]:
    """Judge whether senders and receivers can be attached to the backlog queues."""
    needs = (
        ("Send", "an application cannot store messages there in an outage", "send"),
        ("Listen", "the syphon cannot forward the messages that are stored there", "listen"),
    )
    is_fine = bool(backlog)
    for right, why, attribute in needs:
        lacking = [q.path for q in backlog if kind_of(getattr(q, attribute)) is Kind.RIGHT]
        if lacking:
            is_fine = False
            yield lacks_right("secondary", right, join_some(lacking), why)
    for queue in backlog:
        problem = queue.send or queue.listen
        kind = kind_of(problem)
        if problem is None or kind in (Kind.RIGHT, Kind.MISSING, Kind.SESSIONS, Kind.DISABLED):
            continue
        is_fine = False
        if kind is Kind.KEY:
            if side.administration is None or side.administration.kind is not Kind.KEY:
                yield refused_key(side, problem)
        elif kind is Kind.BUSY:
            yield throttled("secondary", problem.text)
        else:
            yield critical(
                "secondary rights",
                f"{queue.path} cannot be used ({problem.text})",
                "an application cannot store messages there in an outage",
                "see the error; `pairbus backlog list` shows the queue",
            )
        break
    if is_fine and not any(queue.is_missing for queue in backlog):
        yield ok("secondary rights", f"Send and Listen on {len(backlog)} backlog queues")


def judge_backlog(backlog: Sequence[Entity], expected: Expected) -> Iterator[Finding]:
    """Judge whether the backlog queues exist, their properties, and their room."""
    missing = [queue.path for queue in backlog if queue.is_missing]
    if missing:
        grade = critical if len(missing) == len(backlog) else warning
        why = (
            "there is no queue that could take messages in an outage"
            if len(missing) == len(backlog)
            else "applications without the right Manage have fewer queues to fall back on"
        )
        yield grade(
            "backlog queues",
            f"{len(missing)} of {len(backlog)} backlog queues do not exist: {join_some(missing)}",
            why,
            "pairbus pair create",
        )
    known = [(q.path, q.properties) for q in backlog if q.properties is not None]
    problems = [finding for path, found in known for finding in _queue(path, found, expected)]
    problems += _sessions([q for q in backlog if q.properties is None])
    yield from merge(problems)
    yield from _room([found for _, found in known], expected)
    if known and not problems and not missing:
        yield ok("backlog queues", f"{len(known)} queues have the properties they should have")


def _sessions(backlog: Sequence[Entity]) -> Iterator[Finding]:
    """Without administration, the refusal of a receiver shows that sessions are required."""
    for queue in backlog:
        if Kind.SESSIONS in (kind_of(queue.send), kind_of(queue.listen)):
            yield _requires_sessions(queue.path)


def _requires_sessions(path: str) -> Finding:
    return critical(
        "backlog sessions",
        f"{path} requires sessions",
        "messages are stored there without a session id and are refused",
        "delete it while it is empty and run `pairbus pair create`",
    )


def _queue(path: str, found: Properties, expected: Expected) -> Iterator[Finding]:
    if found.requires_session:
        yield _requires_sessions(path)
    if found.status not in ("Active", "active"):
        yield critical(
            "backlog status",
            f"{path} is {found.status}",
            "it takes no messages in an outage, or gives none back",
            "set its status to Active",
        )
    if found.forward_to:
        yield critical(
            "backlog forwarding",
            f"{path} forwards its messages elsewhere",
            "stored messages leave the backlog before the syphon sees them",
            "remove forward_to from the queue",
        )
    if found.lock_duration is not None and found.lock_duration < LOCK:
        yield warning(
            "backlog lock duration",
            f"{path} has a lock duration of {time_of(found.lock_duration)}, not {time_of(LOCK)}",
            "locks end while messages are forwarded, and these are delivered twice",
            "set lock_duration to 1 minute",
        )
    if found.max_delivery_count is not None and found.max_delivery_count < DELIVERIES:
        yield warning(
            "backlog delivery count",
            f"{path} dead-letters a message after {found.max_delivery_count} deliveries",
            "messages that wait for their destination become dead letters",
            "set max_delivery_count to 2147483647",
        )
    if found.time_to_live is not None and found.time_to_live.total_seconds() < 2 * expected.outage:
        yield critical(
            "backlog time to live",
            f"{path} keeps messages for {time_of(found.time_to_live)} only",
            f"in an outage of {duration(expected.outage)} and its drain, messages expire there",
            "remove the default time to live of the queue",
        )
    if found.auto_delete is not None and found.auto_delete < timedelta(days=30):
        yield warning(
            "backlog queues",
            f"{path} deletes itself after {time_of(found.auto_delete)} without use",
            "it is missing when an outage comes",
            "remove auto_delete_on_idle from the queue",
        )
    if not found.keeps_expired:
        yield warning(
            "backlog queues",
            f"{path} drops expired messages instead of dead-lettering them",
            "a message that expires in the backlog is dropped without a record",
            "set dead_lettering_on_message_expiration",
        )
    if found.capacity and found.size >= FULL * found.capacity:
        yield critical(
            "backlog size",
            f"{path} is full ({megabytes(found.size)} of {megabytes(found.capacity)})",
            "it refuses messages in an outage",
            "drain it: pairbus syphon run --until-empty",
        )
    if found.dead_letters:
        yield warning(
            "backlog dead letters",
            f"{path} has {found.dead_letters:,} dead letters",
            "these messages were not delivered, and take up room",
            "pairbus backlog peek --dead-letters, then pairbus backlog resubmit",
        )


def _room(backlog: Sequence[Properties], expected: Expected) -> Iterator[Finding]:
    free = sum(max(0, found.capacity - found.size) for found in backlog if found.capacity)
    if not free:
        return
    text = f"{duration(expected.outage)} at {expected.rate:g} messages a second"
    if expected.backlog > free:
        yield warning(
            "backlog size",
            f"an outage of {text} needs {megabytes(expected.backlog)}; {megabytes(free)} are free",
            "the backlog is full before the outage is over, and sends fail",
            "create more backlog queues, or larger ones",
        )
    else:
        needed = megabytes(expected.backlog)
        yield ok("backlog size", f"{text} needs {needed} of {megabytes(free)} free")
