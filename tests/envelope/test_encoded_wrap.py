"""Encoded messages are wrapped for a backlog queue, and restored from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.message import Message
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.envelope.encoded import open_message, restore
from pairbus.envelope.encoded_wrap import wrap
from pairbus.exceptions import ReservedPropertyError

NOW = 2_000_000_000_000
SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")
moments = st.integers(1, NOW)


def optional(**values):
    return st.fixed_dictionaries({}, optional=values)


messages = st.builds(
    Message.build,
    header=st.none() | optional(ttl=st.integers(1, 1 << 31), durable=st.booleans()).map(
        lambda fields: Header(**fields)
    ),
    message_annotations=st.none() | st.fixed_dictionaries(
        {}, optional={SCHEDULED: moments.map(Timestamp), Symbol("x-mine"): st.text()}
    ),
    properties=st.none() | optional(message_id=st.text(), group_id=st.text(max_size=128)).map(
        lambda fields: Properties(**fields)
    ),
    application_properties=st.none() | st.dictionaries(st.text(min_size=1), st.booleans()),
    data=st.binary(),
)  # fmt: skip


def shown(message):
    """What a receiver sees; a header or properties without any field are the same as none."""
    header, properties = message.header or Header(), message.properties or Properties()
    return (
        header.ttl or None, header.durable or None, properties.message_id, properties.group_id,
        message.message_annotations or {}, message.application_properties or {}, message.body,
    )  # fmt: skip


@given(messages, st.text(min_size=1, max_size=50))
def test_restored_message_is_the_original_one(original, path):
    payload = original.encode()
    wrapped = wrap(payload, path, now=NOW)
    waiting = Message.parse(wrapped.message)
    opened = open_message(wrapped.message)
    home = restore(
        opened.message, session_id=opened.session_id, time_to_live=opened.time_to_live,
        scheduled=opened.scheduled, now=NOW,
    )  # fmt: skip

    assert opened.path == path
    assert opened.problem is None
    assert wrapped.session_id == (original.properties or Properties()).group_id
    assert wrapped.message_id == (original.properties or Properties()).message_id
    assert (waiting.properties or Properties()).group_id is None
    assert not (waiting.header or Header()).ttl
    assert SCHEDULED not in (waiting.message_annotations or {})
    assert shown(Message.parse(home)) == shown(original)


def test_plain_message_is_wrapped_in_one_copy():
    message = Message.build(properties=Properties(message_id="1"), data=b"body")
    quickly = wrap(message.encode(), "orders", now=NOW, has_session=False)
    assert quickly.message == wrap(message.encode(), "orders", now=NOW).message
    assert (quickly.message_id, quickly.session_id) == (None, None)


@pytest.mark.parametrize("name", ["x-ms-path", "x-ms-timetolive"])
def test_message_that_uses_the_name_of_an_alias_is_refused(name):
    message = Message.build(application_properties={"x-ms-mine": 1, name: "a"})
    with pytest.raises(ReservedPropertyError, match=name):
        wrap(message.encode(), "orders", now=NOW)
