"""SQL actions: SET and REMOVE, on properties of the user and of the system."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from pairbus.amqp.types import Described, Float, Int, Symbol, Timestamp, UByte, ULong
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import SqlAction, TypedValue
from pairbus.broker.filters.actions import Changes, compile_action
from pairbus.broker.filters.values import FilterError


class View:
    def __init__(self, properties=(), **system):
        self.properties = dict(properties)
        self._system = system

    def system(self, name):
        return self._system.get(name)


def act(expression, view=None, **parameters):
    pairs = tuple(("@" + name, value) for name, value in parameters.items())
    return compile_action(SqlAction(expression, pairs))(view or View())


@pytest.mark.parametrize(
    ("expression", "before", "after"),
    [
        ("SET a = 1", {}, {"a": 1}),
        ("set a = 1; set b = 'x'", {}, {"a": 1, "b": "x"}),
        ("SET a = 1 SET b = a + 1", {}, {"a": 1, "b": 2}),
        ("SET a = 1, SET b = 2;", {}, {"a": 1, "b": 2}),
        ("SET A = 'y'", {"a": "x"}, {"a": "y"}),
        ("SET [new one] = TRUE", {"a": 1}, {"a": 1, "new one": True}),
        ("SET user.a = NULL", {"a": 1}, {"a": None}),
        ("SET a = missing", {"a": 1}, {"a": None}),
        ("SET a = missing + 1", {"a": 1}, {"a": None}),
        ("REMOVE a", {"a": 1, "b": 2}, {"b": 2}),
        ("SET a = b + 1", {"b": 2**63 - 1}, {"b": 2**63 - 1, "a": ULong(2**63)}),
        ("REMOVE A; SET b = 3", {"a": 1, "b": 2}, {"b": 3}),
        ("REMOVE user.a", {"a": 1}, {}),
        ("SET a = b", {"b": Symbol("s")}, {"b": Symbol("s"), "a": Symbol("s")}),
    ],
)
def test_action_on_user_properties(expression, before, after):
    view = View(before)
    assert act(expression, view).properties == after
    assert view.properties == before


def test_nothing_done_is_no_change():
    assert act("") == Changes()
    assert act("REMOVE missing") == Changes()


@pytest.mark.parametrize(
    ("existing", "expression", "expected"),
    [
        (Int(5), "SET a = a + 1", Int(6)),
        (Int(5), "SET a = 9999999999", 9999999999),
        (UByte(5), "SET a = 'x'", "x"),
        (Float(1.5), "SET a = a * 2", Float(3.0)),
        (Float(1.5), "SET a = 1E300", 1e300),
        (1.5, "SET a = 2", 2.0),
        ("text", "SET a = 2", "2"),
        ("text", "SET a = TRUE", "True"),
    ],
)
def test_set_keeps_the_type_that_the_property_had(existing, expression, expected):
    result = act(expression, View({"a": existing})).properties["a"]
    assert result == expected
    assert type(result) is type(expected)


def test_computed_values_are_ready_for_amqp():
    changes = act(
        "SET t = @t; SET s = @s; SET g = newid()",
        t=TypedValue("dateTime", "2026-01-01T00:00:00Z"),
        s=TypedValue("duration", "PT1S"),
    )
    assert changes.properties["t"] == Timestamp(1767225600000)
    assert type(changes.properties["t"]) is Timestamp
    assert changes.properties["s"] == Described(Symbol("com.microsoft:timespan"), 10_000_000)
    assert isinstance(changes.properties["g"], uuid.UUID)


def test_action_on_system_properties():
    changes = act(
        "SET sys.Label = sys.Label + '!'; SET sys.To = sys.Label; SET sys.MessageId = 5;"
        "REMOVE sys.ReplyTo; SET sys.CorrelationId = NULL; SET sys.TimeToLive = @ttl;"
        "SET sys.ScheduledEnqueueTimeUtc = @at",
        View(subject="hi", reply_to="x"),
        ttl=TypedValue("duration", "PT5S"),
        at=TypedValue("dateTime", "2026-01-01T00:00:00Z"),
    )
    assert changes.properties is None
    assert changes.system == {
        "subject": "hi!",
        "to": "hi!",
        "message_id": "5",
        "reply_to": None,
        "correlation_id": None,
        "time_to_live": timedelta(seconds=5),
        "scheduled_enqueue_time_utc": datetime(2026, 1, 1, tzinfo=UTC),
    }


@pytest.mark.parametrize(
    "expression",
    [
        "SET",
        "SET a",
        "SET a =",
        "SET a = (b = 1)",
        "SET 1 = 1",
        "REMOVE",
        "REMOVE 1",
        "a = 1",
        "SET sys.Nonsense = 1",
        "SET sys.SequenceNumber = 1",
        "REMOVE sys.EnqueuedTimeUtc",
        "SET a = @missing",
        "SET a = 1 2",
    ],
)
def test_action_that_makes_no_sense_is_refused_at_once(expression):
    with pytest.raises(ArgumentError):
        compile_action(SqlAction(expression))


@pytest.mark.parametrize(
    "expression",
    [
        "SET sys.TimeToLive = 5",
        "SET sys.ScheduledEnqueueTimeUtc = 'x'",
        "SET a = 1 / 0",
        "SET a = sys.Nonsense",
        "SET sys.SessionId = long",
        "SET sys.Label = blob",
        "SET sys.ContentType = 'text/für'",
    ],
)
def test_action_that_fails_on_a_message_is_a_filter_error(expression):
    with pytest.raises(FilterError):
        act(expression, View({"long": "x" * 129, "blob": b""}))
