"""A pair of real brokers with backlog queues, and helpers that fill and read them."""

import datetime as dt
import time
import uuid
from dataclasses import dataclass, field

import pytest

from pairbus import broker
from pairbus.amqp.codec import encode
from pairbus.amqp.types import Timestamp
from pairbus.client import BulkConnection
from pairbus.options import SyphonOptions

PREFIX = "contoso/x-servicebus-transfer"


def backlog_message(path, number, *, session=None, ttl=None, scheduled=None, body=b"", more=None):
    """An encoded message as the paired sender leaves it in a backlog queue."""
    application = {"n": number, **(more or {})}
    if path is not None:
        application["x-ms-path"] = path
    if session is not None:
        application["x-ms-sessionid"] = session
    if ttl is not None:
        application["x-ms-timetolive"] = ttl
    if scheduled is not None:
        application["x-ms-scheduledenqueuetimeutc"] = Timestamp(scheduled)
    return b"".join(
        [
            b"\x00\x53\x73" + encode([f"m-{number}-{uuid.uuid4().hex[:8]}"]),
            b"\x00\x53\x74" + encode(application),
            b"\x00\x53\x75" + encode(body or b"%d" % number),
        ]
    )


def order_of(received, backlog_queue):
    """The numbers of messages of one backlog queue as they arrived, the first copy of each."""
    found = {}
    for one in received:
        properties = one.message.application_properties
        if properties["q"] == backlog_queue:
            found.setdefault(properties["n"])
    return list(found)


@dataclass
class Pair:
    """Two namespaces, the backlog queues in the second, and what talks to them."""

    primary: object
    secondary: object
    queues: int
    folder: object
    connections: dict = field(default_factory=dict)

    def options(self, **changes):
        given = {
            "primary": self.primary.connection_string,
            "secondary": self.secondary.connection_string,
            "primary_namespace": "contoso",
            "backlog_queue_count": self.queues,
            "checkpoint": str(self.folder / "checkpoint"),
            "ledger": str(self.folder / "ledger"),
            "retry_after": 0.5,
            "credits_per_second": None,
            "missing_destination": "dead-letter",
        }
        return SyphonOptions(**{**given, **changes})

    def connect(self, namespace):
        kept = self.connections.get(namespace.name)
        if kept is None or not kept.is_usable:
            kept = BulkConnection(namespace.connection_string)
            self.connections[namespace.name] = kept
        return kept

    def fill(self, messages, index=0):
        """Put encoded messages into a backlog queue."""
        sender = self.connect(self.secondary).sender(f"{PREFIX}/{index}")
        for outcome in sender.send_batch(messages):
            assert outcome.is_accepted, outcome.error
        sender.close()

    def take(self, entity, count, timeout=60.0, **link):
        """Receive and complete `count` messages of the primary, waiting for them."""
        receiver = self.connect(self.primary).receiver(entity, **link)
        got = []
        deadline = time.monotonic() + timeout
        while len(got) < count and time.monotonic() < deadline:
            some = receiver.receive(count - len(got), max_wait=1.0)
            if some:
                receiver.complete(some)
                got += some
        receiver.close()
        return got

    def count(self, entity):
        """How many messages an entity of the primary has."""
        return self.primary.do(lambda ns: ns.admin.runtime(entity)).active_message_count

    def numbers(self, entity, count, **options):
        """The numbers of the messages that arrived, in the order of their arrival."""
        taken = self.take(entity, count, **options)
        return [one.message.application_properties["n"] for one in taken]

    def dead_letters(self, index, count, timeout=60.0):
        """(reason, description, n) of dead letters of a backlog queue, taken off it."""
        receiver = self.connect(self.secondary).receiver(f"{PREFIX}/{index}/$DeadLetterQueue")
        got = []
        deadline = time.monotonic() + timeout
        while len(got) < count and time.monotonic() < deadline:
            some = receiver.receive(count - len(got), max_wait=1.0)
            if some:
                receiver.complete(some)
                got += some
        receiver.close()
        found = [one.message.application_properties for one in got]
        return [(p["DeadLetterReason"], p["DeadLetterErrorDescription"], p["n"]) for p in found]

    def close(self):
        for connection in self.connections.values():
            connection.close()


def make_queues(namespace, count, lock=60):
    for number in range(count):
        namespace.create_queue(
            f"{PREFIX}/{number}",
            lock_duration=dt.timedelta(seconds=lock),
            max_delivery_count=2147483647,
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A pair with two backlog queues, in memory, for all tests of a module."""
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        make_queues(secondary, 2)
        pair = Pair(primary, secondary, 2, tmp_path_factory.mktemp("syphon"))
        yield pair
        pair.close()
