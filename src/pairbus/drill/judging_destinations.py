"""How the destinations of a pair should be set up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pairbus.drill.facts import Entity, Facts, Kind, Problem, Properties, Side
from pairbus.drill.findings import Finding, critical, ok, warning
from pairbus.drill.settings import Expected
from pairbus.drill.wording import lacks_right, merge, refused_key, throttled, time_of
from pairbus.monitoring.formatting import duration


def judge_destinations(facts: Facts, expected: Expected) -> Iterator[Finding]:
    """Judge the queues and topics of the primary."""
    destinations = facts.destinations
    problems: list[Finding] = []
    for one in destinations:
        if one.send is not None:
            problems.append(_refused(one, one.send, facts.primary))
        if one.properties is not None:
            problems += _destination(one.path, one.properties, expected)
            problems += _sizes(one.path, one.properties, facts.backlog)
    yield from merge(problems)
    if destinations and not problems:
        detecting = sum(1 for d in destinations if d.properties and d.properties.duplicate_window)
        yield ok(
            "destinations",
            f"{len(destinations)} checked, {detecting} detect duplicates"
            f" for {duration(expected.outage)} or longer",
        )


def _refused(one: Entity, problem: Problem, side: Side) -> Finding:
    match problem.kind:
        case Kind.MISSING:
            return critical(
                "destinations",
                f"primary: there is no queue or topic {one.path}",
                "messages for it wait in the backlog for a day and become dead letters",
                "check the name, or create it",
            )
        case Kind.RIGHT:
            return lacks_right(
                "primary", "Send", one.path, "neither applications nor the syphon can send to it"
            )
        case Kind.KEY:
            return refused_key(side, problem)
        case Kind.BUSY:
            return throttled("primary", problem.text)
        case _:
            return critical(
                "destinations",
                f"primary: {one.path} cannot be used ({problem.text})",
                "neither applications nor the syphon can send to it",
                "see the error",
            )


def _destination(path: str, found: Properties, expected: Expected) -> Iterator[Finding]:
    window, outage = found.duplicate_window, duration(expected.outage)
    if window is not None and window.total_seconds() < expected.outage:
        yield warning(
            "duplicate windows",
            f"{path} detects duplicates for {time_of(window)} only",
            f"a copy that comes after an outage of {outage} is delivered a second time",
            "make duplicate_detection_history_time_window longer",
        )
    life = found.time_to_live
    if life is not None and life.total_seconds() < expected.outage:
        yield warning(
            "time to live",
            f"{path} has a default time to live of {time_of(life)}",
            f"messages that are in it when an outage of {outage} begins expire unread",
            "make default_message_time_to_live longer than the longest expected outage",
        )
    if found.status not in ("Active", "active"):
        yield warning(
            "destinations",
            f"{path} is {found.status}",
            "messages for it are refused, and those in the backlog wait for it",
            "set its status to Active",
        )


def _sizes(path: str, found: Properties, backlog: Sequence[Entity]) -> Iterator[Finding]:
    limits = [q.properties.message_limit for q in backlog if q.properties is not None]
    smallest = min((limit for limit in limits if limit), default=None)
    if smallest and found.message_limit and found.message_limit > smallest:
        yield warning(
            "message sizes",
            f"{path} takes messages of {found.message_limit // 1024:,} KB, the backlog queues "
            f"{smallest // 1024:,} KB",
            "larger messages cannot be stored in an outage",
            "use one tier on both sides, or oversize='refuse' to detect them while healthy",
        )
