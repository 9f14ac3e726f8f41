"""An outage that only the drill's own client sees: a gate between it and the primary.

The primary's client of the drill connects through a local TCP gate (`custom_endpoint_address` of
the SDK); everything else on this machine, and the namespace itself, are untouched. When the gate
closes, connections are reset and new ones are refused, so that the real path is taken: the SDK's
errors, their classification, suspicion, failover, pings, and the failback.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import certifi
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusError,
)

from pairbus import PairedClient, SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.broker.faults.proxy import FaultProxy
from pairbus.classify import Verdict, classify
from pairbus.drill.account import Attempt, DrillStoppedError, Outage
from pairbus.drill.checks import address
from pairbus.drill.facts import Kind, Problem
from pairbus.drill.settings import Settings
from pairbus.events import (
    BacklogQueueRemoved,
    Event,
    FailedOver,
    MessageBacklogged,
    PingSent,
    Restored,
)
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.monitoring.formatting import brief, one_line
from pairbus.names import join_host

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient

PAUSE = 0.1  # seconds between sends that fail
STAY = timedelta(minutes=10)  # how long a message stays in a queue of the user


class HostContext(ssl.SSLContext):
    """A TLS context that expects the certificate of `host`, whatever address is connected to."""

    host = ""

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Wrap a socket; the server must prove that it is `host`."""
        return super().wrap_socket(*args, **{**options, "server_hostname": self.host})


def gated_client(endpoint: Endpoint, gate: FaultProxy) -> ServiceBusClient:
    """Return a client of the namespace whose connections go through the gate."""
    options: dict[str, Any] = {
        "custom_endpoint_address": f"sb://{gate.address}",
        "transport_type": TransportType.Amqp,
        "retry_total": 0,
    }
    if not endpoint.is_emulator:
        context = HostContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certifi.where())
        context.host = address(endpoint)[0]
        options["ssl_context"] = context
    return endpoint.client(**options)


@dataclass(eq=False)
class Rehearsal:
    """Sends through an outage.

    Args:
        pair: the pair.
        settings: how many messages, and the intervals.
        entities: the queues and topics to send to, and whether each requires sessions.
        prefix: of the message ids.
        note: called with each step and its seconds.
    """

    pair: Pair
    settings: Settings
    entities: dict[str, bool]
    prefix: str
    note: Callable[[str, float, str], None]
    outage: Outage = field(default_factory=Outage, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _failed_over: set[str] = field(default_factory=set, init=False)
    _problem: Problem = field(init=False)

    def run(self) -> Outage:
        """Send before, during and after the outage.

        Raises:
            DrillStoppedError: a step did not succeed.
        """
        host, port = address(self.pair.require_primary())
        with FaultProxy(join_host(host, port)) as gate, self._client(gate) as client:
            senders = {name: client.get_queue_sender(name) for name in self.entities}
            began = time.monotonic()
            self._send_all(senders, "before")
            self._done("send to the primary", began)
            self._fail_over(gate, senders)
            began = time.monotonic()
            self._send_all(senders, "outage")
            self._done("send to the backlog", began)
            self._fail_back(gate)
            began = time.monotonic()
            self._send_all(senders, "after")
            self._done("send to the primary again", began)
        return self.outage

    def _done(self, step: str, began: float) -> None:
        count = self.settings.messages
        self.note(step, time.monotonic() - began, f"{count} messages")

    @contextlib.contextmanager
    def _client(self, gate: FaultProxy) -> Iterator[PairedClient]:
        pair, settings = self.pair, self.settings
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=pair.secondary_client(),
            primary_namespace=pair.primary_namespace,
            backlog_queue_count=pair.backlog_queue_count,
            failover_interval=settings.failover_interval,
            ping_primary_interval=settings.ping_interval,
            send_timeout=settings.send_timeout,
            ledger=pair.ledger,
            observers=[self._observe],
        )
        with pair_namespace(gated_client(pair.require_primary(), gate), options) as client:
            yield client

    def _observe(self, event: Event) -> None:
        with self._changed:
            match event:
                case FailedOver():
                    self._failed_over.add(event.entity.lower())
                case Restored():
                    self._failed_over.discard(event.entity.lower())
                case PingSent():
                    self.outage.pings += 1
                case MessageBacklogged():
                    self.outage.backlogged.update(event.message_ids)
                case BacklogQueueRemoved():
                    self.outage.removed[event.entity] = brief(event.reason)
            self._changed.notify_all()

    # -- steps

    def _fail_over(self, gate: FaultProxy, senders: dict[str, Any]) -> None:
        cut = time.monotonic()
        gate.mode = "refuse"
        deadline = cut + self.settings.failover_interval + self.settings.timeout
        last = ""
        for name, sender in senders.items():
            while name.lower() not in self._failed_over:
                attempt = self._send(sender, name)
                if not attempt.is_ok:
                    last = attempt.error
                if time.monotonic() > deadline:
                    problem = Problem(Kind.OTHER, f"{name} does not fail over; last: {last}")
                    raise DrillStoppedError("failover", problem)
                with self._changed:
                    self._changed.wait_for(lambda: name.lower() in self._failed_over, PAUSE)  # noqa: B023 - waited for here
        self.outage.until_failover = _since(cut)
        text = f"{self.outage.failed} sends failed before it"
        self.note("fail over", self.outage.until_failover, text)

    def _fail_back(self, gate: FaultProxy) -> None:
        began = time.monotonic()
        gate.mode = "pass"
        with self._changed:
            if not self._changed.wait_for(lambda: not self._failed_over, self.settings.timeout):
                names = ", ".join(sorted(self._failed_over))
                problem = Problem(Kind.OTHER, f"{names}: no ping was accepted")
                raise DrillStoppedError("failback", problem)
        self.outage.until_failback = _since(began)
        pings = self.outage.pings
        self.note(
            "fail back", self.outage.until_failback, f"{pings} ping{'' if pings == 1 else 's'}"
        )

    def _send_all(self, senders: dict[str, Any], phase: str) -> None:
        names = list(senders)
        for number in range(self.settings.messages):
            name = names[number % len(names)]
            if not self._send(senders[name], name).is_ok:
                raise DrillStoppedError(f"sending ({phase})", self._problem)

    def _send(self, sender: Any, name: str) -> Attempt:
        number = len(self.outage.attempts)
        attempt = Attempt(f"{self.prefix}-{number}", time.time())
        self.outage.attempts.append(attempt)
        options: dict[str, Any] = {"session_id": self.prefix} if self.entities[name] else {}
        if name != self.prefix:
            options["time_to_live"] = STAY
        message = ServiceBusMessage(
            f"pairbus drill {number}",
            message_id=attempt.id,
            application_properties={"pairbus-drill": self.prefix},
            **options,
        )
        try:
            sender.send_messages(message)
            attempt.is_ok = True
        except ServiceBusError as error:
            self._problem = send_problem(error)
            attempt.error = self._problem.text
        attempt.ended = time.time()
        return attempt


def send_problem(error: ServiceBusError) -> Problem:
    """Classify a failed send."""
    kinds = {
        Verdict.BUSY: Kind.BUSY,
        Verdict.FULL: Kind.FULL,
        Verdict.MISSING: Kind.MISSING,
        Verdict.OUTAGE: Kind.CONNECTION,
    }
    verdict = classify(error)
    kind = kinds.get(verdict, Kind.OTHER)
    if kind is Kind.OTHER and isinstance(error, ServiceBusAuthenticationError):
        kind = Kind.KEY
    elif type(error).__name__ == "ServiceBusAuthorizationError":
        kind = Kind.RIGHT
    elif type(error).__name__ == "PairUnavailableError":
        kind = Kind.OTHER
    return Problem(kind, one_line(error))


def _since(began: float) -> float:
    return time.monotonic() - began
