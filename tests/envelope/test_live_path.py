"""Messages through the live path: SDK, broker, bulk client, restore, broker; compared with direct.

Each message is built with azure-servicebus, with every AMQP type that it can write, and sent twice:
directly, and wrapped through a backlog queue. What arrives must be the same.
"""

import copy
import time
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairbus import broker
from pairbus.amqp.message import Message
from pairbus.amqp.types import Timestamp
from pairbus.client import BulkConnection
from pairbus.envelope.encoded import open_message, restore
from pairbus.envelope.fields import ALIASES, check_reserved
from pairbus.envelope.sdk import annotated, wrap
from pairbus.exceptions import ReservedPropertyError

NOW = int(time.time() * 1000)
HOUR = 3_600_000


class Route:
    """Two ways to a destination in one broker, and what arrives by each."""

    def __init__(self, namespace, client, bulk):
        namespace.create_queue("direct")
        namespace.create_queue("backlog")
        namespace.create_queue("home")
        self._direct = client.get_queue_sender("direct")
        self._backlog = client.get_queue_sender("backlog")
        self._bulk = bulk
        self._receiver = bulk.receiver("backlog")
        self._next = {"direct": 0, "home": 0}

    def direct(self, messages):
        """The messages as they arrive when they are sent directly."""
        self._direct.send_messages([copy.deepcopy(message) for message in messages])
        return self._arrived("direct", len(messages))

    def by_backlog(self, messages, path, *, now=NOW):
        """The wrapped messages as a receiver of the backlog gets them, and restored ones."""
        self._backlog.send_messages([wrap(message, path, now=NOW) for message in messages])
        received = []
        while len(received) < len(messages):
            received += self._receiver.receive_now(len(messages))
        opened = [open_message(one.payload) for one in received]
        home = [
            restore(
                one.message,
                session_id=one.session_id,
                time_to_live=one.time_to_live,
                scheduled=one.scheduled,
                now=now,
            )
            for one in opened
        ]
        assert [one.path for one in opened] == [path] * len(messages)
        assert [one.problem for one in opened] == [None] * len(messages)
        outcomes = self._bulk.sender("home").send_batch(home)
        assert all(outcome.is_accepted for outcome in outcomes)
        self._receiver.complete(received)
        return [one.payload for one in received], self._arrived("home", len(messages))

    def _arrived(self, queue, count):
        # Peeked, because a scheduled message cannot be received yet.
        page = []
        while len(page) < count:
            more = self._bulk.management(queue).peek(self._next[queue], count)
            page += more
            self._next[queue] = more[-1].sequence_number + 1
        return [open_message(one.payload, aliases=False).message for one in page]


@pytest.fixture(scope="module")
def route():
    with (
        broker.run("contoso") as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        BulkConnection(namespace.connection_string) as bulk,
    ):
        yield Route(namespace, client, bulk)


def typed(kind, value):
    return {"TYPE": kind, "VALUE": value}


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
moments = st.datetimes(datetime(2100, 1, 1), datetime(2200, 1, 1)).map(  # noqa: DTZ001
    lambda moment: moment.replace(tzinfo=UTC, microsecond=0)
)
simple = st.one_of(
    st.none(),
    st.booleans(),
    text,
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    st.uuids(),
    moments,
    st.integers(0, 255).map(lambda v: typed("UBYTE", v)),
    st.integers(-128, 127).map(lambda v: typed("BYTE", v)),
    st.integers(0, 2**16 - 1).map(lambda v: typed("USHORT", v)),
    st.integers(-(2**15), 2**15 - 1).map(lambda v: typed("SHORT", v)),
    st.integers(0, 2**32 - 1).map(lambda v: typed("UINT", v)),
    st.integers(0, 2**64 - 1).map(lambda v: typed("ULONG", v)),
    st.integers(-(2**63), 2**63 - 1).map(lambda v: typed("LONG", v)),
    st.floats(width=32, allow_nan=False).map(lambda v: typed("FLOAT", v)),
    st.integers(0, 2**40).map(lambda v: typed("TIMESTAMP", v)),
    st.text(st.characters(codec="ascii"), max_size=10).map(lambda v: typed("SYMBOL", v)),
    st.sampled_from([Decimal("1.5"), Decimal(-3)]),
)
values = st.recursive(
    simple | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
names = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12)
application_properties = st.none() | st.dictionaries(
    names.filter(lambda name: name not in ALIASES), simple, max_size=5
)
bodies = st.one_of(
    st.lists(st.binary(max_size=40), min_size=1, max_size=3).map(lambda v: {"data_body": v}),
    st.lists(st.lists(values, max_size=3), min_size=1, max_size=2).map(
        lambda v: {"sequence_body": v}
    ),
    values.map(lambda v: {"value_body": v}),
)
scheduled_keys = st.sampled_from([b"x-opt-scheduled-enqueue-time", "x-opt-scheduled-enqueue-time"])


@st.composite
def messages(draw):
    annotations = draw(
        st.none() | st.dictionaries(names.map(lambda name: "x-mine-" + name), simple, max_size=3)
    )
    if draw(st.booleans()):
        annotations = {**(annotations or {}), draw(scheduled_keys): draw(moments)}
    header = draw(
        st.none()
        | st.builds(
            AmqpMessageHeader,
            time_to_live=st.none() | st.integers(HOUR, 2**32 - 1),
            durable=st.none() | st.booleans(),
            priority=st.none() | st.integers(0, 9),
        )
    )
    properties = draw(
        # A sender gives each message an id, and a broker would.
        st.builds(
            AmqpMessageProperties,
            message_id=st.one_of(text.filter(bool), st.uuids(), st.integers(1, 2**40)),
            user_id=st.none() | st.binary(max_size=8),
            to=st.none() | text,
            subject=st.none() | text,
            reply_to=st.none() | text,
            correlation_id=st.none() | text,
            content_type=st.none() | names,
            content_encoding=st.none() | names,
            group_id=st.none() | text,
            group_sequence=st.none() | st.integers(0, 2**32 - 1),
            reply_to_group_id=st.none() | text,
        )
    )
    return AmqpAnnotatedMessage(
        **draw(bodies),
        header=header,
        properties=properties,
        application_properties=draw(application_properties),
        annotations=annotations,
        footer=draw(st.none() | st.dictionaries(names, simple, max_size=2)),
    )


def content(payload):
    """The sections of a message with the types of all values, but for the times of day."""
    message = Message.parse(payload)
    properties, header = message.properties, message.header
    fields = type(properties).__dataclass_fields__ if properties is not None else ()
    return {
        "header": {
            name: getattr(header, name)
            for name in ("durable", "priority", "ttl")
            if header is not None and getattr(header, name) is not None
        },
        "annotations": _types(message.message_annotations),
        "properties": {
            name: (type(getattr(properties, name)), getattr(properties, name))
            for name in fields
            if name not in ("absolute_expiry_time", "creation_time")
            and getattr(properties, name) is not None
        },
        "application properties": _types(message.application_properties),
        "body": message.raw_section(0x75),
        "footer": message.footer or {},
    }


def _types(found):
    return {key: (type(value), value) for key, value in (found or {}).items()}


@given(st.lists(messages(), min_size=1, max_size=6), text.filter(bool))
@example([AmqpAnnotatedMessage(value_body=None, properties={"message_id": "1"})], "orders")
@settings(max_examples=40)
def test_message_arrives_by_the_backlog_as_it_arrives_directly(route, originals, path):
    before = [copy.deepcopy(vars(message)) for message in originals]

    direct = route.direct(originals)
    waiting, home = route.by_backlog(originals, path)

    assert [content(payload) for payload in home] == [content(payload) for payload in direct]
    for payload, original, arrived in zip(waiting, originals, home, strict=True):
        held = Message.parse(payload)
        assert held.header is None or not held.header.ttl
        assert held.properties is None or held.properties.group_id is None
        assert "x-opt-scheduled-enqueue-time" not in (held.message_annotations or {})
        if original.header is not None and original.header.time_to_live:
            assert held.properties.absolute_expiry_time is None
            times = Message.parse(arrived).properties
            assert times.absolute_expiry_time == NOW + original.header.time_to_live
            assert times.creation_time == NOW
    assert [vars(message) for message in originals] == before


def test_untouched_message_arrives_with_the_same_bytes(route):
    message = AmqpAnnotatedMessage(
        value_body=[1, {"a": Decimal("1.5")}],
        properties={"message_id": uuid.uuid4(), "group_id": "s"},
        annotations={"x-mine": typed("UINT", 3), b"x-opt-scheduled-enqueue-time": moment()},
        application_properties={"n": typed("UBYTE", 7)},
        footer={"crc": 5},
    )
    assert route.by_backlog([message], "orders")[1] == route.direct([message])


def moment():
    return datetime(2150, 1, 1, tzinfo=UTC)


def test_aliases_have_their_names_and_types(route):
    message = ServiceBusMessage(
        "a",
        session_id="s",
        time_to_live=timedelta(hours=2),
        scheduled_enqueue_time_utc=moment(),
        application_properties={"mine": "kept"},
    )
    [payload], _ = route.by_backlog([message], "orders")

    found = Message.parse(payload).application_properties
    at = int(moment().timestamp() * 1000)
    assert found == {
        "mine": "kept",
        "x-ms-path": "orders",
        "x-ms-sessionid": "s",
        "x-ms-timetolive": 2 * HOUR,
        "x-ms-scheduledenqueuetimeutc": at,
    }
    kinds = [type(found[name]) for name in ALIASES]
    assert kinds == [str, str, int, Timestamp]  # an int is an AMQP long


def test_expiry_is_never_in_the_past(route):
    message = ServiceBusMessage("a", time_to_live=timedelta(hours=1))
    long_after = NOW + 48 * HOUR
    _, [payload] = route.by_backlog([message], "orders", now=long_after)

    restored = Message.parse(payload)
    assert restored.header.ttl == HOUR
    assert restored.properties.absolute_expiry_time == long_after + HOUR


@pytest.mark.parametrize("footer", [None, {"f": 1}])
def test_delivery_annotations_survive_though_the_sdk_writes_them_last(route, footer):
    message = AmqpAnnotatedMessage(
        data_body=b"x",
        delivery_annotations={"d": 1},
        footer=footer,
        properties={"message_id": "1", "group_id": "s"},
    )
    assert route.by_backlog([message], "orders")[1] == route.direct([message])


@pytest.mark.parametrize("name", [*ALIASES, *(alias.encode() for alias in ALIASES)])
def test_reserved_names_are_refused(name):
    message = ServiceBusMessage("a", application_properties={name: "x"})

    with pytest.raises(ReservedPropertyError) as caught:
        wrap(message, "orders", now=NOW)
    assert caught.value.names == (name.decode() if isinstance(name, bytes) else name,)


@pytest.mark.parametrize(
    ("given_value", "session"), [(typed("STRING", "s"), "s"), (b"s", "s"), (7, "7"), (None, None)]
)
def test_session_id_is_text_in_whatever_form_the_sdk_takes_it(given_value, session):
    message = AmqpAnnotatedMessage(data_body=b"x", properties={"group_id": given_value})
    wrapped = wrap(message, "orders", now=NOW)
    assert (wrapped.application_properties or {}).get("x-ms-sessionid") == session


def test_scheduled_time_that_is_not_a_time_stays_where_it_is():
    message = AmqpAnnotatedMessage(
        data_body=b"x", annotations={"x-opt-scheduled-enqueue-time": "soon"}
    )
    wrapped = wrap(message, "orders", now=NOW)
    assert wrapped.annotations == {"x-opt-scheduled-enqueue-time": "soon"}
    assert wrapped.application_properties == {"x-ms-path": "orders"}


def test_aliases_take_less_than_a_kilobyte(route):
    message = ServiceBusMessage(
        "a",
        session_id="s" * 128,
        time_to_live=timedelta(days=1),
        scheduled_enqueue_time_utc=moment(),
        message_id="1",
    )
    [payload], [home] = route.by_backlog([message], "p" * 260)
    assert len(open_message(payload, aliases=False).message) - len(home) < 1024
    assert annotated(message) is message.raw_amqp_message


def test_message_without_application_properties_uses_no_reserved_name():
    check_reserved(None)
    check_reserved({"x-ms-mine": 1})
