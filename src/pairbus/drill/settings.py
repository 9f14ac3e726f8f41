"""The settings of a drill, its steps and its cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from pairbus.monitoring.formatting import duration
from pairbus.pricing import PriceList, Rules
from pairbus.reports.estimate import Workload, estimate

ROOM_FOR_ALIASES = 1024  # bytes that the envelope may add to a message


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a drill is run.

    Attributes:
        entities: Queues and topics of the user to send to; empty for a canary queue.
        messages: Messages that are sent in each of the three phases.
        failover_interval: The drill's own, in seconds.
        ping_interval: The drill's own, in seconds.
        user_failover_interval: The one that the applications use.
        user_ping_interval: The one that the applications use.
        expected: The outage to be ready for.
        clients: Processes of the applications, for the estimate.
        syphon: `running` waits for one that runs; `spark` and `here` start one, on Spark or in this
            process; `auto` waits, and then starts one.
        notice: Seconds to wait for a running syphon before one is started.
        drain_timeout: Seconds for the drain.
        timeout: Seconds for each other step.
        send_timeout: Deadline of a send, in seconds.
        rules: Switches of the cost model.
    """

    entities: tuple[str, ...] = ()
    messages: int = 20
    failover_interval: float = 2.0
    ping_interval: float = 1.0
    user_failover_interval: float = 60.0
    user_ping_interval: float = 60.0
    expected: Expected = field(default_factory=Expected)
    clients: int = 10
    syphon: str = "auto"
    notice: float = 10.0
    drain_timeout: float = 120.0
    timeout: float = 60.0
    send_timeout: float = 10.0
    rules: Rules = field(default_factory=Rules)


@dataclass(slots=True)
class Operations:
    """Billable operations of a drill."""

    send_primary: int = 0
    send_backlog: int = 0
    receive_backlog: int = 0
    receive_primary: int = 0
    settle: int = 0
    ping: int = 0
    management: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations and money."""

    operations: int
    amount: Decimal
    currency: str
    prices_of: str


def price(operations: int, prices: PriceList, rules: Rules) -> Cost:
    """Return the cost of operations in a month whose included operations are used up."""
    amount = prices.tier(rules.tier).cost(operations, after=rules.month_operations)
    return Cost(operations, amount, prices.currency, str(prices.date))


def planned(settings: Settings, queues: int) -> Operations:
    """Return the approximate operations of a drill."""
    entities = max(1, len(settings.entities))
    count = settings.messages
    pings = entities * 3
    return Operations(
        send_primary=3 * count,  # before, after, and by the syphon
        send_backlog=count,
        receive_backlog=count,
        receive_primary=0 if settings.entities else 3 * count,
        settle=count if settings.entities else 4 * count,
        ping=pings,
        management=10 + 3 * queues,
    )


def plan(settings: Settings, queues: int) -> list[str]:
    """Return the steps of a drill."""
    to = ", ".join(settings.entities) or "a canary queue of its own in the primary"
    return [
        "check both namespaces: reachability, rights, backlog queues, destinations",
        f"send {settings.messages} messages to {to}",
        "cut this process's own connection to the primary, and nothing else",
        f"send until it fails over, after {settings.failover_interval:g} s",
        f"send {settings.messages} messages through {queues} backlog queues",
        f"restore the connection, and wait for a ping (every {settings.ping_interval:g} s)",
        f"send {settings.messages} messages to the primary",
        "wait for a running syphon, or start one, until the backlog is drained",
        "compare the ids that were sent with those that arrived",
        "remove the canary queue" if not settings.entities else "remove its messages",
    ]


def outlook(settings: Settings, queues: int, prices: PriceList) -> Cost:
    """Return the additional cost of the expected outage."""
    expected = settings.expected
    found = estimate(
        Workload(
            clients=settings.clients,
            entities=max(1, len(settings.entities)),
            rate=expected.rate,
            size=expected.size,
            outage=expected.outage,
            queues=queues,
            ping_interval=settings.user_ping_interval,
        ),
        prices,
        settings.rules,
    )
    extra = found.extra
    amount = extra.money + extra.transfer_money
    return Cost(extra.operations, amount, found.currency, found.prices_of)


def compared(settings: Settings) -> list[str]:
    """Return the times that the user's own intervals would give, instead of the drill's."""
    failing = settings.user_failover_interval
    calls = settings.expected.rate * failing
    first = (
        f"with failover_interval={failing:g} sends fail for {duration(failing)} before they fail "
        f"over, about {calls:,.0f} calls at {settings.expected.rate:g} a second"
        if failing
        else "with failover_interval=0 the call that fails first is redirected"
    )
    second = (
        f"with ping_primary_interval={settings.user_ping_interval:g} sends return to the primary "
        f"up to {duration(settings.user_ping_interval)} after it is back"
    )
    return [first, second]
