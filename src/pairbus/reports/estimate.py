"""Estimates the cost of an outage: pure arithmetic over the figures that a user gives.

A message that takes the backlog is charged in four stages, send to backlog, receive from backlog,
send to primary, receive from primary, and is settled twice. Without an outage it is sent, received
and settled once. Pings and idle polls come on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from pairbus.names import billable
from pairbus.pricing import MONTH_HOURS, PriceList, Rules
from pairbus.reports.fates import charged
from pairbus.reports.sums import add_up

ALIASES = 200
"""Bytes that the envelope's application properties add to a message, typically."""
IDLE_LINK_TIMEOUT = 600.0
"""Seconds after which Service Bus detaches an idle receiver, which ends a longer poll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The figures of an estimate; each has a default.

    Args:
        clients: paired clients, which are processes of the application.
        entities: queues and topics that they send to, each client to each.
        rate: messages a second, of all clients together.
        size: bytes of a message.
        outage: seconds that the primary is unavailable.
        queues: backlog queues.
        subscriptions: receivers' copies of a message; 1 for a queue.
        batch: messages in a batch that is sent.
        ping_interval: seconds between the pings of one entity and client.
        poll: seconds that a syphon's idle long poll lasts.
        syphons: concurrent syphons.
    """

    clients: int = 10
    entities: int = 5
    rate: float = 10.0
    size: int = 1024
    outage: float = 3600.0
    queues: int = 10
    subscriptions: int = 1
    batch: int = 1
    ping_interval: float = 60.0
    poll: float = 900.0
    syphons: int = 1

    def __post_init__(self) -> None:
        for name in ("clients", "entities", "queues", "subscriptions", "batch", "syphons"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("rate", "size", "outage"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("ping_interval", "poll"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")

    @property
    def messages(self) -> int:
        """Messages that go to the backlog: all that are sent during the outage."""
        return int(self.rate * self.outage)


@dataclass(frozen=True, slots=True)
class Charge:
    """One stage of the estimate: operations and money at both ends of the uncertain rules.

    `anyway` says that the same would be spent without an outage; `derived` that the application
    itself does it, not pairbus.
    """

    stage: str
    where: str
    operations: int
    operations_low: int
    money: Decimal
    money_low: Decimal
    transfer_bytes: int = 0
    transfer_money: Decimal = Decimal(0)
    anyway: bool = False
    derived: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of an outage by stage and in total, and of idle syphons without one."""

    workload: Workload
    rules: Rules
    currency: str
    prices_of: str
    messages: int
    stages: tuple[Charge, ...]
    total: Charge
    anyway: Charge
    extra: Charge
    idle: Mapping[str, Charge]
    setup: Charge
    base_per_month: Decimal
    assumptions: tuple[str, ...] = field(default=())


def estimate(workload: Workload, prices: PriceList, rules: Rules | None = None) -> Estimate:
    """Return the cost of an outage.

    Raises:
        PriceError: the price list has no such tier.
    """
    rules = rules or Rules()
    meter = _Meter(prices, rules)
    n, subs = workload.messages, workload.subscriptions
    sent = _sends(n, workload.size, workload.batch)
    wrapped = _sends(n, workload.size + ALIASES, workload.batch)
    held = n * billable(workload.size + ALIASES)
    received = n * subs * billable(workload.size)
    bytes_ = n * (workload.size + ALIASES)
    pings = workload.clients * workload.entities * int(workload.outage / workload.ping_interval)
    # the first ping that succeeds ends the failover: one for each entity and client
    taken = min(pings, workload.clients * workload.entities)
    # Operations without an outage come first in the month, so that `extra` is the added cost.
    usual = [
        meter.charge("send_primary", "primary", *sent, anyway=True),
        meter.charge("receive_primary", "primary", received, anyway=True, derived=True),
        meter.charge("settle", "primary", n * subs, anyway=True, derived=True),
    ]
    added = [
        meter.charge("send_backlog", "secondary", *wrapped, transfer=bytes_),
        meter.charge("receive_backlog", "secondary", held, transfer=bytes_),
        meter.charge("settle", "secondary", n),
        meter.charge("ping", "primary", taken, tried=pings),
    ]
    stages = (*added[:3], *usual, *added[3:])
    anyway = add_up(Charge, usual, stage="anyway", where="both")
    extra = add_up(Charge, added, stage="extra", where="both")
    idle = {
        name: _Meter(prices, rules).charge("idle_poll", "secondary", polls)
        for name, polls in _idle_polls(workload).items()
    }
    lookups = workload.clients * workload.queues + workload.queues
    tier = prices.tier(rules.tier)
    return Estimate(
        workload=workload,
        rules=rules,
        currency=prices.currency,
        prices_of=prices.date.isoformat(),
        messages=n,
        stages=stages,
        total=add_up(Charge, stages, stage="total", where="both"),
        anyway=anyway,
        extra=extra,
        idle=idle,
        setup=_Meter(prices, rules).charge("management", "secondary", lookups),
        base_per_month=tier.base_per_month if tier.base_per == "namespace" else Decimal(0),
        assumptions=_assumptions(workload, prices, rules),
    )


def _idle_polls(workload: Workload) -> dict[str, int]:
    each_hour = workload.queues * workload.syphons * 3600 / workload.poll
    hours = {"hour": 1, "day": 24, "30 days": 720}
    return {name: round(each_hour * count) for name, count in hours.items()}


def _sends(messages: int, size: int, batch: int) -> tuple[int, int]:
    """Return the operations of sending, by message and by batch."""
    full, rest = divmod(messages, batch)
    by_batch = full * billable(size * batch) + (billable(size * rest) if rest else 0)
    return messages * billable(size), by_batch


class _Meter:
    """Charges one stage after the other, moving through the month's price steps."""

    def __init__(self, prices: PriceList, rules: Rules) -> None:
        self._prices = prices
        self._rules = rules
        self._tier = prices.tier(rules.tier)
        self._used = self._used_low = rules.month_operations

    def charge(
        self,
        stage: str,
        where: str,
        billable: int,
        batched: int = 0,
        *,
        tried: int = 0,
        transfer: int = 0,
        anyway: bool = False,
        derived: bool = False,
    ) -> Charge:
        row = {
            "stage": stage,
            "billable": billable,
            "billable_batched": batched or billable,
            "tried": tried or billable,
        }
        chosen, low = charged(row, self._rules)
        after, self._used = self._used, self._used + chosen
        after_low, self._used_low = self._used_low, self._used_low + low
        return Charge(
            stage=stage,
            where=where,
            operations=chosen,
            operations_low=low,
            money=self._tier.cost(chosen, after=after),
            money_low=self._tier.cost(low, after=after_low),
            transfer_bytes=transfer,
            transfer_money=self._prices.transfer(transfer, self._rules),
            anyway=anyway,
            derived=derived,
        )


def _assumptions(workload: Workload, prices: PriceList, rules: Rules) -> tuple[str, ...]:
    tier = prices.tier(rules.tier)
    lines = [
        f"all messages of the {workload.outage / 60:,g} minutes of outage go through the backlog",
        f"all {workload.clients:,} clients together send {workload.rate:,g} messages a second",
        f"a message has {workload.size:,} bytes, and is sent in batches of {workload.batch}",
        f"aliases add about {ALIASES} bytes to a message in the backlog",
        "each message is settled once after each receive; a settle is one operation",
        f"each client pings each entity every {workload.ping_interval:g} s of the outage",
        "the application's own receives and settlements on the primary are derived, not measured",
        f"copies of each message that are received: {workload.subscriptions}",
        f"{tier.name} tier, prices of {prices.date} in {prices.currency}",
        f"the subscription uses {rules.month_operations:,} other operations in the month",
        "uncertain: whether a poll that ends empty is charged (low: it is not)",
        "uncertain: whether a ping that the primary does not accept is charged (low: it is not)",
        "uncertain: whether a batch counts by message or by its whole size (low: by its size)",
    ]
    if workload.poll > IDLE_LINK_TIMEOUT:
        polls = _idle_polls(replace(workload, poll=IDLE_LINK_TIMEOUT))
        lines.append(
            "where the service detaches idle receivers after 10 minutes, an idle syphon makes "
            + ", ".join(f"{count:,} receives per {span}" for span, count in polls.items())
        )
    if rules.one_region:
        lines.append("both namespaces, senders and syphon are in one region: data transfer is free")
    else:
        lines.append(
            f"two regions: bytes to and from the backlog leave a region once each, at "
            f"{prices.transfer_per_gb} per GB"
        )
    if tier.base_per == "namespace":
        lines.append(
            f"a second {tier.name} namespace is {tier.base_per_month} a month and messaging unit, "
            f"about {tier.base_per_month / MONTH_HOURS:.4f} an hour, on top"
        )
    else:
        lines.append("a second namespace of this tier adds no base charge in one subscription")
    return tuple(lines)
