"""What the tests of the broker's rules share: a namespace on a clock that we set."""

from __future__ import annotations

from pairbus.amqp.message import Message
from pairbus.broker.entities.messages import Delivery, IncomingMessage
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.settings import Tier


class Clock:
    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Host:
    """A link that keeps what it gets."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.rendered: list[bytes | None] = []
        self.drains = 0
        self.error: Exception | None = None

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries
        self.rendered += [d.message.bare for d in deliveries]

    def drained(self) -> None:
        self.drains += 1

    def closed(self, error: Exception) -> None:
        self.error = error

    @property
    def bodies(self) -> list[bytes]:
        return [d.message.bare or b"" for d in self.deliveries]

    @property
    def tokens(self) -> list[bytes]:
        return [d.lock_token for d in self.deliveries]

    def take(self) -> list[Delivery]:
        taken, self.deliveries = self.deliveries, []
        return taken


class Bench:
    """A namespace in memory with one queue ``q``, and short ways to use it."""

    def __init__(self, store=None, clock=None, tier=Tier.PREMIUM, **queue) -> None:
        self.clock = clock or Clock()
        self.ns = Namespace("test", store, self.clock, tier=tier)
        if self.ns.catalog.find("q") is None:
            self.ns.admin.create(QueueDescription("q", **queue))

    def send(self, *bodies: bytes, path: str = "q", **fields) -> None:
        self.ns.send(path, [IncomingMessage(body, **fields) for body in bodies])

    def receiver(self, path: str = "q", credit: int = 0, **options):
        host = Host()
        receiver = self.ns.receivers.open(path, host, **options)
        if credit:
            receiver.grant(credit)
        return receiver, host

    def receive(self, credit: int = 1, path: str = "q", **options):
        """Receive what is there now, and close: locks live on."""
        receiver, host = self.receiver(path, **options)
        receiver.grant(credit, drain=True)
        receiver.close()
        return host.deliveries

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now += milliseconds
        while self.ns.context.next_deadline() <= self.clock.now:
            self.ns.tick()


def properties_of(delivery: Delivery) -> dict[str, object]:
    """The application properties of what was delivered."""
    return dict(Message.parse(delivery.message.bare or b"").application_properties or {})
