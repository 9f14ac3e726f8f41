"""The short way through the SDK: taken where it can be, left where the SDK is another one."""

import copy
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp import message as of_sdk
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.pairing.sdk import writing as _writing

PLAIN = [
    {},
    {"application_properties": {"a": 1, "b": "text"}},
    {"session_id": "s", "content_type": "text", "subject": "s", "correlation_id": "c"},
    {"time_to_live": timedelta(minutes=1)},
    {"time_to_live": timedelta.max},
    {"partition_key": "p"},
    {"scheduled_enqueue_time_utc": datetime(2200, 1, 1, tzinfo=UTC)},
]
UNUSUAL = [
    {"annotations": {b"x-opt-enqueued-time": 5}},
    {"annotations": {"other": 5, b"x-opt-partition-key": "p"}},
    {"application_properties": {"a": b"bytes"}},
    {"message_id": None, "session_id": "s"},
]


def message(fields):
    annotations = fields.get("annotations")
    fields = {"message_id": "1", **fields}
    fields.pop("annotations", None)
    made = ServiceBusMessage("body", **fields)
    if annotations:
        made.raw_amqp_message.annotations = annotations
    if fields.get("message_id", "") is None:
        made.message_id = None
    return made.raw_amqp_message


@pytest.fixture
def frozen(monkeypatch):
    """A moment that both ways take for the time: the SDK writes it, too."""
    now = time.gmtime()
    monkeypatch.setattr(_writing.time, "gmtime", lambda: now)
    mktime = time.mktime((*now[:8], -1))
    monkeypatch.setattr(time, "mktime", lambda fields: mktime)


@pytest.mark.parametrize("transport", [PyamqpTransport, PyamqpTransportAsync])
@pytest.mark.parametrize("fields", PLAIN, ids=str)
def test_usual_message_takes_the_short_way_and_comes_out_the_same(fields, transport, frozen):
    long_way = transport.to_outgoing_amqp_message
    expected = long_way(message(fields))
    calls = []
    short_way = _writing._short_way(calls.append, of_sdk.Message, of_sdk.Header, of_sdk.Properties)

    made = short_way(message(fields))

    assert calls == []
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize("fields", UNUSUAL, ids=str)
def test_unusual_message_takes_the_long_way(fields):
    calls = []
    short_way = _writing._short_way(calls.append, of_sdk.Message, of_sdk.Header, of_sdk.Properties)
    raw = message(fields)

    short_way(raw)
    short_way(SimpleNamespace())
    short_way(type("Own", (AmqpAnnotatedMessage,), {})(data_body=b"", properties={"message_id": 1}))

    assert calls[0] is raw
    assert len(calls) == 3


def test_sender_is_left_as_it_is_where_the_sdk_makes_something_else_of_a_message():
    class Other(PyamqpTransport):
        @staticmethod
        def to_outgoing_amqp_message(annotated_message):
            made = PyamqpTransport.to_outgoing_amqp_message(copy.deepcopy(annotated_message))
            header = made.header and made.header._replace(durable=True)
            return made._replace(header=header)

    class Strange(PyamqpTransport):
        to_outgoing_amqp_message = None

    for transport in (Other, Strange, None):
        sender = SimpleNamespace(_amqp_transport=transport)
        _writing.shorten(sender)
        assert sender._amqp_transport is transport

    sender = SimpleNamespace(_amqp_transport=PyamqpTransport)
    _writing.shorten(sender)
    assert issubclass(sender._amqp_transport, PyamqpTransport)
    assert sender._amqp_transport is not PyamqpTransport
    _writing.shorten(SimpleNamespace())
