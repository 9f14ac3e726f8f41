"""From facts to findings: every rule of the drill about how a pair should be set up. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pairbus.drill.facts import Facts, Kind, Side
from pairbus.drill.findings import Finding, critical, ok, warning
from pairbus.drill.judging_backlog import judge_backlog, judge_rights
from pairbus.drill.judging_destinations import judge_destinations
from pairbus.drill.settings import Expected
from pairbus.drill.wording import join_some, refused_key, throttled


def judge(facts: Facts, expected: Expected, *, needs_canary: bool = False) -> list[Finding]:
    """Return the findings, in the order in which they should be read.

    Args:
        facts: the facts about the pair.
        expected: the outage to be ready for.
        needs_canary: the drill must create a queue in the primary.
    """
    found = [*_side(facts.primary), *_side(facts.secondary), *_names(facts)]
    if facts.primary.reach is None:
        found += _administration(facts.primary, needs_canary=needs_canary)
        found += judge_destinations(facts, expected)
    if facts.secondary.reach is None:
        found += _administration(facts.secondary, needs_canary=False)
        found += judge_rights(facts.backlog, facts.secondary)
        found += judge_backlog(facts.backlog, expected)
    if facts.leftovers:
        found.append(
            warning(
                "leftovers",
                f"a former drill left {join_some(facts.leftovers)} in the primary",
                "its messages may still be in the backlog",
                "pairbus drill clean",
            )
        )
    return found


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
            f"the primary is called {primary.name}, but its backlog queues are searched under "
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
        yield refused_key(side, problem)
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
