"""From facts to findings: every rule of the drill about how a pair should be set up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pairbus.drill.facts import Entity, Facts, Kind, Problem, Properties, Side
from pairbus.drill.findings import Finding, critical, ok, warning
from pairbus.monitoring.formatting import duration

LOCK = timedelta(minutes=1)
DELIVERIES = 1000  # below this, returns of held messages may use the delivery count up
FULL = 0.95
ROOM_FOR_ALIASES = 1024
MANY = 3  # entities that a finding names


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The outage to be ready for.

    Attributes:
        outage: Its length in seconds.
        rate: Messages a second of all applications together.
        size: Bytes of a message.
    """

    outage: float = 3600.0
    rate: float = 10.0
    size: int = 1024

    @property
    def backlog(self) -> int:
        """Bytes that the outage puts into the backlog."""
        return int(self.outage * self.rate * (self.size + ROOM_FOR_ALIASES))


def judge(facts: Facts, expected: Expected, *, needs_canary: bool = False) -> list[Finding]:
    """Return the findings, in the order in which they should be read.

    Args:
        facts: what was learned.
        expected: the outage to be ready for.
        needs_canary: the drill must create a queue in the primary.
    """
    found = [*_side(facts.primary), *_side(facts.secondary), *_names(facts)]
    if facts.primary.reach is None:
        found += _administration(facts.primary, needs_canary=needs_canary)
        found += _destinations(facts, expected)
    if facts.secondary.reach is None:
        found += _administration(facts.secondary, needs_canary=False)
        found += _rights(facts.backlog, facts.secondary)
        found += _backlog(facts.backlog, expected)
    if facts.leftovers:
        found.append(
            warning(
                "leftovers",
                f"a former drill left {_list(facts.leftovers)} in the primary",
                "its messages may still be in the backlog",
                "pairbus drill clean",
            )
        )
    return found


# -- the two namespaces


def _side(side: Side) -> Iterator[Finding]:
    check = f"{side.role} reachability"
    if side.reach is None:
        yield ok(check, f"{side.host}:{side.port} answers in {1000 * side.seconds:.0f} ms")
    elif side.reach.kind is Kind.NAME:
        yield critical(
            check,
            f"{side.role}: the name {side.host} cannot be resolved ({side.reach.text})",
            f"nothing on this machine can use the {side.role}",
            f"check the name of the {side.role} namespace, and the name servers of this machine",
        )
    else:
        way = (
            "port 443 is open: give the clients transport_type=AmqpOverWebsocket, or open the port"
            if side.is_web_open
            else "check the port and the firewalls between this machine and the namespace"
        )
        yield critical(
            check,
            f"{side.role}: port {side.port} of {side.host} is closed ({side.reach.text})",
            f"nothing on this machine can use the {side.role}",
            way,
        )


def _names(facts: Facts) -> Iterator[Finding]:
    primary, secondary = facts.primary, facts.secondary
    if (primary.host, primary.port) == (secondary.host, secondary.port):
        yield critical(
            "namespaces",
            f"primary and secondary are the same namespace, {primary.host}",
            "an outage takes the backlog away together with its destinations",
            "use two namespaces, in two regions if possible",
        )
    if primary.name and primary.name.lower() != facts.primary_namespace.lower():
        yield critical(
            "namespaces",
            f"the primary is called {primary.name}, but its backlog queues are looked for under "
            f"{facts.primary_namespace}",
            "applications and syphon use different backlog queues, and messages stay there",
            f"set primary_namespace to {primary.name.lower()}, or leave it out",
        )


def _administration(side: Side, *, needs_canary: bool) -> Iterator[Finding]:
    check = f"{side.role} administration"
    problem = side.administration
    if problem is None:
        yield ok(check, f"the entities of {side.role} {side.name} can be read")
        return
    if side.expired_at is not None or problem.kind is Kind.KEY:
        yield _refused_key(side, problem)
    elif problem.kind is Kind.BUSY:
        yield throttled(side.role, problem.text)
    elif problem.kind is Kind.RIGHT and needs_canary:
        yield critical(
            check,
            f"{side.role}: the credentials lack the right Manage",
            "the drill cannot create a canary queue there",
            "use credentials with Manage, or name a queue of your own with --entity",
        )
    elif problem.kind is Kind.RIGHT:
        yield ok(check, f"{side.role}: without the right Manage, properties are not checked")
    else:
        yield warning(
            check,
            f"{side.role}: the administration does not answer ({problem.text})",
            "properties of the entities could not be checked",
            "check that port 443 can be reached from here",
        )


def _refused_key(side: Side, problem: Problem) -> Finding:
    if side.expired_at is not None:
        when = datetime.fromtimestamp(side.expired_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return critical(
            f"{side.role} credentials",
            f"{side.role}: the shared access signature expired at {when}",
            f"every use of the {side.role} is refused",
            "issue a new signature, or use a key or a token credential, which renew themselves",
        )
    return critical(
        f"{side.role} credentials",
        f"{side.role}: the key or token is refused ({problem.text})",
        f"every use of the {side.role} is refused",
        "check whether the key was regenerated or has expired, and update the connection string",
    )


def throttled(role: str, text: str) -> Finding:
    """A namespace that answers server-busy."""
    return critical(
        "throttling",
        f"{role}: the namespace is being throttled ({text})",
        "live sends are refused, and a drain after an outage adds to the load"
        if role == "primary"
        else "in an outage its senders would wait, and fail at their deadline",
        "find out what uses up its operations a second, spread the load, or use the Premium tier",
    )


# -- backlog queues


def _rights(backlog: Sequence[Entity], side: Side) -> Iterator[Finding]:
    needs = (
        ("Send", "an application cannot store messages there in an outage", "send"),
        ("Listen", "the syphon cannot forward the messages that are stored there", "listen"),
    )
    is_fine = bool(backlog)
    for right, why, attribute in needs:
        lacking = [q.path for q in backlog if _kind(getattr(q, attribute)) is Kind.RIGHT]
        if lacking:
            is_fine = False
            yield critical(
                "secondary rights",
                f"secondary: the credentials lack the right {right} on {_list(lacking)}",
                why,
                f"give the rule or identity the right {right}",
            )
    for queue in backlog:
        problem = queue.send or queue.listen
        kind = _kind(problem)
        if problem is None or kind in (Kind.RIGHT, Kind.MISSING, Kind.SESSIONS, Kind.DISABLED):
            continue
        is_fine = False
        if kind is Kind.KEY:
            if side.administration is None or side.administration.kind is not Kind.KEY:
                yield _refused_key(side, problem)
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


def _backlog(backlog: Sequence[Entity], expected: Expected) -> Iterator[Finding]:
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
            f"{len(missing)} of {len(backlog)} backlog queues do not exist: {_list(missing)}",
            why,
            "pairbus backlog create",
        )
    known = [(q.path, q.properties) for q in backlog if q.properties is not None]
    problems = [finding for path, found in known for finding in _queue(path, found, expected)]
    problems += _sessions([q for q in backlog if q.properties is None])
    yield from _merge(problems)
    yield from _room([found for _, found in known], expected)
    if known and not problems and not missing:
        yield ok("backlog queues", f"{len(known)} queues have the properties they should have")


def _sessions(backlog: Sequence[Entity]) -> Iterator[Finding]:
    """Without administration, the refusal of a receiver shows that sessions are required."""
    for queue in backlog:
        if Kind.SESSIONS in (_kind(queue.send), _kind(queue.listen)):
            yield _requires_sessions(queue.path)


def _requires_sessions(path: str) -> Finding:
    return critical(
        "backlog sessions",
        f"{path} requires sessions",
        "messages are stored there without a session id and are refused",
        "delete it while it is empty and run `pairbus backlog create`",
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
            f"{path} has a lock duration of {_time(found.lock_duration)}, not {_time(LOCK)}",
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
            f"{path} keeps messages for {_time(found.time_to_live)} only",
            f"in an outage of {duration(expected.outage)} and its drain, messages expire there",
            "remove the default time to live of the queue",
        )
    if found.auto_delete is not None and found.auto_delete < timedelta(days=30):
        yield warning(
            "backlog queues",
            f"{path} deletes itself after {_time(found.auto_delete)} without use",
            "it is missing when an outage comes",
            "remove auto_delete_on_idle from the queue",
        )
    if not found.keeps_expired:
        yield warning(
            "backlog queues",
            f"{path} drops expired messages instead of dead-lettering them",
            "a message that expires in the backlog is gone without a trace",
            "set dead_lettering_on_message_expiration",
        )
    if found.capacity and found.size >= FULL * found.capacity:
        yield critical(
            "backlog size",
            f"{path} is full ({_megabytes(found.size)} of {_megabytes(found.capacity)})",
            "it refuses messages in an outage",
            "drain it: pairbus syphon run --until-empty",
        )
    if found.dead_letters:
        yield warning(
            "backlog dead letters",
            f"{path} has {found.dead_letters:,} dead letters",
            "these messages were not delivered, and take up room",
            "pairbus backlog peek QUEUE --dead-letters, then pairbus backlog resubmit",
        )


def _room(backlog: Sequence[Properties], expected: Expected) -> Iterator[Finding]:
    free = sum(max(0, found.capacity - found.size) for found in backlog if found.capacity)
    if not free:
        return
    text = f"{duration(expected.outage)} at {expected.rate:g} messages a second"
    if expected.backlog > free:
        yield warning(
            "backlog size",
            f"an outage of {text} needs {_megabytes(expected.backlog)}; "
            f"{_megabytes(free)} are free",
            "the backlog is full before the outage is over, and sends fail",
            "create more backlog queues, or larger ones",
        )
    else:
        needed = _megabytes(expected.backlog)
        yield ok("backlog size", f"{text} needs {needed} of {_megabytes(free)} free")


# -- destinations


def _destinations(facts: Facts, expected: Expected) -> Iterator[Finding]:
    destinations = facts.destinations
    problems: list[Finding] = []
    for one in destinations:
        if one.send is not None:
            problems.append(_refused(one, one.send, facts.primary))
        if one.properties is not None:
            problems += _destination(one.path, one.properties, expected)
            problems += _sizes(one.path, one.properties, facts.backlog)
    yield from _merge(problems)
    if destinations and not problems:
        detecting = sum(1 for d in destinations if d.properties and d.properties.duplicate_window)
        yield ok(
            "destinations",
            f"{len(destinations)} looked at, {detecting} detect duplicates"
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
            return critical(
                "primary rights",
                f"primary: the credentials lack the right Send on {one.path}",
                "neither applications nor the syphon can send to it",
                "give the rule or identity the right Send",
            )
        case Kind.KEY:
            return _refused_key(side, problem)
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
            f"{path} detects duplicates for {_time(window)} only",
            f"a copy that comes after an outage of {outage} is delivered a second time",
            "make duplicate_detection_history_time_window longer",
        )
    life = found.time_to_live
    if life is not None and life.total_seconds() < expected.outage:
        yield warning(
            "time to live",
            f"{path} has a default time to live of {_time(life)}",
            f"messages that are in it when an outage of {outage} begins expire unread",
            "make default_message_time_to_live longer than the outage to expect",
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
            "use one tier on both sides, or oversize='refuse' to notice while all is well",
        )


# -- words


def _kind(problem: Problem | None) -> Kind | None:
    return None if problem is None else problem.kind


def _merge(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Report the same problem of many entities once, with the number of the others."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.check, finding.why, finding.remedy), []).append(finding)
    for group in groups.values():
        first = group[0]
        more = f" (and {len(group) - 1} others alike)" if len(group) > 1 else ""
        yield Finding(first.check, first.level, first.what + more, first.why, first.remedy)


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MANY])
    return shown if len(names) <= MANY else f"{shown} and {len(names) - MANY} more"


def _time(span: timedelta) -> str:
    return duration(span.total_seconds())


def _megabytes(size: int) -> str:
    return f"{size / 1024 / 1024:,.0f} MB"
