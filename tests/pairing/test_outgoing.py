"""Messages made ready for a backlog queue: encoded as the SDK does, packed within limits."""

import copy
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError
from hypothesis import example, given
from hypothesis import strategies as st

from pairbus.amqp.message import Message
from pairbus.envelope.encoded import open_message, restore
from pairbus.envelope.encoded_wrap import wrap as wrap_encoded
from pairbus.envelope.fields import ALIASES, PATH
from pairbus.envelope.sdk import annotated, wrap
from pairbus.exceptions import OversizeError, ReservedPropertyError
from pairbus.pairing.outgoing import (
    BACKLOG_LIMIT,
    PairedMessageBatch,
    exact_size,
    prepare,
    with_id,
)
from pairbus.pairing.packing import pack
from pairbus.pairing.sdk.batches import payloads_of
from pairbus.syphon.rows import as_text

NOW = 2_000_000_000_000


def encode(message):
    """The message as the SDK writes it."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=1 << 30)
    batch.add_message(message)
    return payloads_of(batch)[0]


def typed(kind, value):
    return {"TYPE": kind, "VALUE": value}


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
moments = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1)).map(  # noqa: DTZ001
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
        st.none() | st.dictionaries(names.map(lambda name: "x-opt-" + name), simple, max_size=3)
    )
    if draw(st.booleans()):
        annotations = {**(annotations or {}), draw(scheduled_keys): draw(moments)}
    header = draw(
        st.none()
        | st.builds(
            AmqpMessageHeader,
            time_to_live=st.none() | st.integers(1, 2**32 - 1),
            durable=st.none() | st.booleans(),
            priority=st.none() | st.integers(0, 9),
        )
    )
    properties = draw(
        st.none()
        | st.builds(
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


def sections(message, *, with_times=False):
    """What a message says, section by section, types included."""
    properties = message.properties
    said = (
        {
            name: getattr(properties, name, None)
            for name in type(properties).__dataclass_fields__
            if with_times or name not in ("absolute_expiry_time", "creation_time")
        }
        if properties
        else {}
    )
    header = message.header
    annotations = message.message_annotations or {}
    names_ = message.application_properties or {}
    return {
        "header": {
            name: getattr(header, name)
            for name in ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
            if header is not None and getattr(header, name) is not None
        },
        "annotations": {key: (type(value), value) for key, value in annotations.items()},
        "properties": {k: (type(v), v) for k, v in said.items() if v is not None},
        "names": {key: (type(value), value) for key, value in names_.items()},
        "body": message.raw_section(0x75),
        "footer": message.footer or {},
    }


@given(messages(), text.filter(bool))
@example(AmqpAnnotatedMessage(value_body=None), "orders")
def test_encoded_messages_are_wrapped_as_objects_are(message, path):
    payload = encode(message)
    direct = Message.parse(payload)

    wrapped, message_id, session = wrap_encoded(payload, path, now=NOW)
    waiting = Message.parse(wrapped)

    by_object = Message.parse(encode(wrap(message, path, now=NOW)))
    assert sections(waiting) == sections(by_object)
    assert message_id == (direct.properties.message_id if direct.properties else None)
    assert session == (direct.properties.group_id if direct.properties else None)
    if direct.properties is None or direct.properties.group_id is None:
        plain = wrap_encoded(payload, path, now=NOW, has_session=False)
        assert sections(Message.parse(plain.message)) == sections(waiting)
    opened = open_message(wrapped)
    home = restore(
        opened.message,
        session_id=opened.session_id,
        time_to_live=opened.time_to_live,
        scheduled=opened.scheduled,
        now=NOW,
    )
    assert sections(Message.parse(home)) == sections(direct)


some_text = st.none() | text | st.integers(200, 300).map(lambda size: "é" * size)
plain_messages = st.builds(
    AmqpAnnotatedMessage,
    data_body=st.lists(st.binary(max_size=40) | st.just(b"x" * 300), min_size=1, max_size=2),
    header=st.none() | st.builds(AmqpMessageHeader),
    application_properties=st.none()
    | st.dictionaries(names.filter(lambda name: name not in ALIASES), text, max_size=70),
    properties=st.builds(
        AmqpMessageProperties,
        message_id=text.filter(bool) | st.just("i" * 300),
        to=some_text,
        subject=some_text,
        reply_to=some_text,
        correlation_id=some_text,
        content_type=st.none() | names,
        content_encoding=st.none() | names,
        group_id=some_text,
        reply_to_group_id=some_text,
    ),
)


def has_no_ttl(message):
    """With one the SDK writes the time of day, too."""
    return message.header is None or not message.header.time_to_live


@given(
    st.lists(messages().filter(has_no_ttl) | plain_messages, max_size=5).map(
        lambda some: [*map(with_id, some)]
    )
)
def test_batches_are_written_as_the_sdk_writes_them(raws):
    given_messages = [ServiceBusMessage(None, message=None, raw_amqp_message=raw) for raw in raws]
    of_sdk = ServiceBusMessageBatch(max_size_in_bytes=1 << 20)
    ours = PairedMessageBatch(1 << 20, limit=1 << 20)
    for message in given_messages:
        of_sdk.add_message(copy.deepcopy(message))
        ours.add_message(message)

    assert ours._message == of_sdk._message  # noqa: SLF001 - the encoded batch is compared byte for byte
    assert ours.size_in_bytes == of_sdk.size_in_bytes
    assert len(ours) == len(of_sdk) == len(ours.notes)
    assert ours.originals == given_messages


def test_batch_is_full_where_the_sdks_is():
    of_sdk = ServiceBusMessageBatch(max_size_in_bytes=3000)
    ours = PairedMessageBatch(3000, limit=1 << 20)
    message = ServiceBusMessage(b"x" * 200, message_id="i")
    refusals = []
    for batch in (of_sdk, ours):
        for _ in range(20):
            try:
                batch.add_message(message)
            except MessageSizeExceededError as error:
                refusals.append(str(error))
        batch.add_message(ServiceBusMessage(b"", message_id="fits"))

    assert len(ours) == len(of_sdk) < 20
    assert ours.size_in_bytes == of_sdk.size_in_bytes
    assert len(set(refusals)) == 1
    assert payloads_of(ours) == payloads_of(of_sdk)


def test_a_message_of_a_batch_is_as_it_was_when_it_was_added():
    batch = PairedMessageBatch(1 << 20, limit=1 << 20)
    message = ServiceBusMessage(b"then", message_id="1")
    batch.add_message(message)
    batch.add_message(message)
    message.message_id = "2"

    assert {Message.parse(p).properties.message_id for p in payloads_of(batch)} == {"1"}


def test_a_message_of_a_batch_may_not_use_a_reserved_name():
    batch = PairedMessageBatch(1 << 20, limit=1 << 20)
    for _ in range(2):
        with pytest.raises(ReservedPropertyError):
            batch.add_message(ServiceBusMessage(b"", application_properties={PATH: "p"}))
        batch.add_message(ServiceBusMessage(b""))

    assert len(batch) == 2


@given(messages(), text.filter(bool))
def test_a_single_message_arrives_in_the_backlog_as_it_was_wrapped(message, path):
    raw = annotated(with_id(message))
    [chunk] = pack(prepare(raw), path, 1 << 20)
    what = chunk.what
    is_encoded = isinstance(what, ServiceBusMessageBatch)
    sent = payloads_of(what)[0] if is_encoded else encode(what)

    assert sections(Message.parse(sent)) == sections(
        Message.parse(encode(wrap(raw, path, now=NOW)))
    )


@pytest.mark.parametrize("empty", ["", 0, False, [], {}])
def test_message_without_a_body_can_be_read_in_the_backlog(empty):
    """The SDK writes no body section at all where the value of the body is empty."""
    payload = encode(with_id(AmqpAnnotatedMessage(value_body=empty)))

    waiting = Message.parse(wrap_encoded(payload, "orders", now=NOW, has_session=False).message)

    assert sections(waiting) == sections(
        Message.parse(wrap_encoded(payload, "orders", now=NOW).message)
    )
    assert waiting.application_properties == {"x-ms-path": "orders"}


@pytest.mark.parametrize("name", [*ALIASES, *(alias.encode() for alias in ALIASES)])
def test_reserved_names_are_refused(name):
    message = ServiceBusMessage("a", application_properties={name: "x"})

    with pytest.raises(ReservedPropertyError) as caught:
        wrap(message, "orders", now=NOW)
    assert caught.value.names == (name.decode() if isinstance(name, bytes) else name,)
    with pytest.raises(ReservedPropertyError):
        prepare(message)
    with pytest.raises(ReservedPropertyError):
        wrap_encoded(encode(message), "orders", now=NOW)


def test_packing_keeps_order_and_limits():
    outgoing = prepare([ServiceBusMessage("x" * n, message_id=str(n)) for n in range(1, 400)])

    chunks = pack(outgoing, "orders", 10_000)

    assert [one for chunk in chunks for one in chunk.message_ids] == [str(n) for n in range(1, 400)]
    assert all(chunk.what.size_in_bytes <= 10_000 for chunk in chunks)
    assert [m for chunk in chunks for m in chunk.originals] == list(outgoing.originals)


@pytest.mark.parametrize(
    "message",
    [
        {"data_body": b"x" * 180_000, "footer": {"k": "x" * 90_000}},
        {"data_body": b"x" * 180_000, "annotations": {"k": "x" * 90_000}},
        {"value_body": [uuid.UUID(int=1)] * 15_500},
        {"value_body": [Decimal(1)] * 15_500},
    ],
)
def test_message_that_a_batch_refuses_is_not_in_the_batch(message):
    def refuse(item):
        if exact_size(item, "orders") > BACKLOG_LIMIT:
            raise OversizeError(1, 2)

    batch = PairedMessageBatch(1 << 20, oversized=refuse, refuses=True)

    with pytest.raises(OversizeError):
        batch.add_message(AmqpAnnotatedMessage(**message))

    assert len(batch) == 0


def test_an_id_that_is_no_text_is_recorded_as_the_syphon_records_it():
    for name in (b"\xff\x00", b"order-1", uuid.UUID(int=7), "order-1"):
        message = AmqpAnnotatedMessage(
            data_body=b"x", properties=AmqpMessageProperties(message_id=name)
        )
        [chunk] = pack(prepare(message), "orders", BACKLOG_LIMIT)
        assert chunk.message_ids == (as_text(name),)
