"""The SQL filter language: what it takes, what it says of a message, and what it refuses."""

import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus.amqp.types import (
    Decimal64,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)  # fmt: skip
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from pairbus.broker.filters.compiled import check_rule, compile_filter
from pairbus.broker.filters.parser import parse_predicate
from pairbus.broker.filters.values import FilterError, like_pattern

GUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
NEWYEAR = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class View:
    properties: dict[str, Any] = field(default_factory=dict)
    system_properties: dict[str, Any] = field(default_factory=dict)

    def system(self, name):
        return self.system_properties.get(name)


MESSAGE = View(
    {
        "color": "red",
        "quantity": Int(7),
        "big": ULong(2**64 - 1),
        "small": UByte(1),
        "price": 2.5,
        "weight": Float(0.5),
        "urgent": True,
        "nothing": None,
        "guid": GUID,
        "when": Timestamp(int(NEWYEAR.timestamp() * 1000)),
        "span": Described(Symbol("com.microsoft:timespan"), 36_000_000_000),
        "Zürich": "zh",
        "a space": "x",
        "a]b": "bracket",
        'q"q': "quote",
        "sym": Symbol("symbolic"),
        "blob": b"\x00",
        "far": Described(Symbol("com.microsoft:timespan"), 2**63 - 1),
        "long": "x" * 40_000,
        "decimal": Decimal64(b"12345678"),
        "list": [1],
        "percent": "50%",
        "and": "keyword",
        "p": "plain p",
    },
    {
        "message_id": "m-1",
        "subject": "greeting",
        "to": "somewhere",
        "correlation_id": ULong(5),
        "time_to_live": timedelta(minutes=1),
        "enqueued_time_utc": NEWYEAR,
        "sequence_number": 12,
        "session_id": "s",
        "content_type": "text/plain",
        "reply_to": "back",
        "reply_to_session_id": "rs",
    },
)


def truth(expression, **parameters):
    pairs = tuple(("@" + name, value) for name, value in parameters.items())
    return parse_predicate(expression, pairs).evaluate(MESSAGE)


@pytest.mark.parametrize(
    "expression",
    [
        "color = 'red'",
        "COLOR = 'red'",
        "user.color = 'red'",
        "USER.Color = 'red'",
        "color='red'and quantity=7",
        "color <> 'blue'",
        "color != 'blue'",
        "color < 'reds'",
        "color >= 'red'",
        "'O''Brien' = 'O''Brien'",
        "quantity = 7",
        "quantity = 7.0",
        "quantity=+7",
        "-quantity = -7",
        "- - quantity = 7",
        "quantity > price",
        "price = 25e-1",
        "price = .25E+1",
        "weight < small",
        "big > quantity",
        "big = 18446744073709551615.0 OR big > 9223372036854775807",
        "quantity + 1 = 8",
        "quantity - 1 * 2 = 5",
        "(quantity - 1) * 2 = 12",
        "10 - 2 - 3 = 5",
        "quantity / 2 = 3",
        "-7 / 2 = -3",
        "-7 % 3 = -1",
        "7 % -3 = 1",
        "quantity / 2.0 = 3.5",
        "7.5 % 2 = 1.5",
        "1.0 / 0 > 1000000",
        "-1 / 0.0 < 0",
        "color + '-ish' = 'red-ish'",
        "color + quantity = 'red7'",
        "quantity + color = '7red'",
        "-9223372036854775808 < 0",
        "price <= 2.5",
        "price = 25E-1 AND 1E2 = 100",
        "span - span < span",
        "'' + when = '2026-01-01T00:00:00.000000Z'",
        "urgent = TRUE",
        "urgent",
        "NOT urgent = false",
        "not not urgent",
        "TRUE",
        "FALSE OR urgent",
        "color IN ('blue', 'red')",
        "color NOT IN ('blue')",
        "quantity IN (1, 2+5)",
        "color LIKE 'r%'",
        "color LIKE '%e%'",
        "color LIKE '_e_'",
        "color LIKE 'red'",
        "color NOT LIKE 'b%'",
        "color LIKE '%'",
        "percent LIKE '50\\%' ESCAPE '\\'",
        "percent LIKE '50!%' ESCAPE '!'",
        "percent NOT LIKE '5!%' ESCAPE '!'",
        "missing IS NULL",
        "nothing IS NULL",
        "color IS NOT NULL",
        "sys.ReplyTo IS NOT NULL",
        "EXISTS(color)",
        "EXISTS(user.color)",
        "exists ( nothing )",
        "NOT EXISTS(missing)",
        "EXISTS(sys.Label)",
        "EXISTS(property('color'))",
        "NOT EXISTS(sys.PartitionKey)",
        "sys.Label = 'greeting'",
        "SYS.subject = 'greeting'",
        "sys.MessageId = 'm-1'",
        "sys.CorrelationId = '5'",
        "sys.To = 'somewhere' AND sys.ReplyTo = 'back'",
        "sys.SessionId = 's' AND sys.ReplyToSessionId = 'rs'",
        "sys.ContentType LIKE 'text/%'",
        "sys.SequenceNumber > 11",
        "[color] = 'red'",
        "\"color\" = 'red'",
        "[sys].[Label] = 'greeting'",
        "[a space] = 'x'",
        "[a]]b] = 'bracket'",
        '"q""q" = \'quote\'',
        "[and] = 'keyword'",
        "user.and = 'keyword'",
        "Zürich = 'zh'",
        "sym = 'symbolic'",
        "property('color') = 'red'",
        "p('col' + 'or') = 'red'",
        "property('sys.Label') = 'greeting'",
        "property('a space') = 'x'",
        "p = 'plain p'",
        "guid = '01234567-89AB-CDEF-0123-456789abcdef'",
        "'01234567-89AB-CDEF-0123-456789abcdef' = guid",
        "newid() <> newid()",
        "span + span > span",
        "when + span > when",
        "span + when - when = span",
        "when - span < when",
        "sys.EnqueuedTimeUtc = when",
        "sys.TimeToLive < span",
        "color = 'blue' OR color = 'green' OR color = 'red'",
        "color = 'red' OR quantity = 'text'",  # short circuit
        "missing = 1 OR urgent",
        "1=1",
        "\t1\n=\r1 ",
    ],
)
def test_expression_is_true_of_the_message(expression):
    assert truth(expression) is True


@pytest.mark.parametrize(
    "expression",
    [
        "color = 'Red'",
        "color = 'blue'",
        "NOT color = 'red'",
        "color NOT IN ('red')",
        "color LIKE 'R%'",
        "color LIKE 're'",
        "color LIKE '%x%'",
        "color LIKE ''",
        "color LIKE 'redder%'",
        "percent LIKE '5!%' ESCAPE '!'",
        "color IS NULL",
        "missing IS NOT NULL",
        "nothing IS NOT NULL",
        "EXISTS(missing)",
        "missing = 1 AND 1=0",
        "0.0 / 0 = 0.0 / 0",
        "1=0",
        "FALSE",
        "color = 'blue' AND quantity = 'text'",
    ],
)
def test_expression_is_false_of_the_message(expression):
    assert truth(expression) is False


@pytest.mark.parametrize(
    "expression",
    [
        "missing = 1",
        "NOT missing = 1",
        "missing <> 1",
        "missing + 1 = 2",
        "-missing = 1",
        "nothing = 1",
        "nothing = NULL",
        "color = NULL",
        "missing IN (1)",
        "missing NOT IN (1)",
        "color IN ('blue', NULL)",
        "missing LIKE 'a'",
        "color LIKE missing",
        "color LIKE 'a' ESCAPE missing",
        "missing",
        "missing = 1 AND 1=1",
        "missing = 1 OR 1=0",
        "property(missing) = 1",
        "EXISTS(property(missing))",
        "sys.PartitionKey = 'x'",
    ],
)
def test_expression_is_unknown_of_the_message_and_does_not_pass(expression):
    assert truth(expression) is None
    assert compile_filter(SqlFilter(expression))(MESSAGE) is False


@pytest.mark.parametrize(
    "expression",
    [
        "color = 1",
        "color > 1",
        "quantity < 'x'",
        "urgent > FALSE",
        "urgent = 1",
        "guid < guid",
        "blob = 'x'",
        "list = 1",
        "decimal = 1",
        "color - 1 = 2",
        "urgent + 1 = 2",
        "-color = 1",
        "when = 'x'",
        "quantity LIKE '7'",
        "color LIKE 'a' ESCAPE color",
        "color LIKE 'a!' ESCAPE '!'",
        "quantity / 0 = 1",
        "quantity % 0 = 1",
        "big * big = 1",
        "color",
        "quantity AND 1=1",
        "sys.Nonsense = 1",
        "property('sys.Nonsense') = 1",
        "property(1) = 1",
        "when + span + far = when",
        "long + long = 'x'",
        "color + blob = 'x'",
    ],
)
def test_expression_without_sense_for_the_types_is_a_filter_error(expression):
    with pytest.raises(FilterError):
        truth(expression)


@pytest.mark.parametrize(
    ("expression", "offset", "token"),
    [
        ("", 1, "end of expression"),
        ("color =", 8, "end of expression"),
        ("color = 'red", 9, "'red"),
        ("= 1", 1, "="),
        ("1", 1, "1"),
        ("'a'", 1, "'a'"),
        ("1 + 1", 1, "1"),
        ("a = 1 b", 7, "b"),
        ("a = 1 = 1", 7, "="),
        ("(a = 1", 7, "end of expression"),
        ("a = 1)", 6, ")"),
        ("a == 1", 4, "="),
        ("a = (b = 1)", 5, "("),
        ("(a = 1) + 1 = 2", 1, "("),
        ("a AND (1 + 1)", 7, "("),
        ("a IN ()", 7, ")"),
        ("a IN 1", 6, "1"),
        ("a NOT 1", 7, "1"),
        ("a IS 1", 6, "1"),
        ("1 IS NULL", 1, "1"),
        ("EXISTS(1)", 8, "1"),
        ("EXISTS(newid())", 8, "newid"),
        ("EXISTS color", 8, "color"),
        ("nofunction(1) = 1", 1, "nofunction"),
        ("a.b = 1", 1, "a"),
        ("sys. = 1", 6, "="),
        ("and = 1", 1, "and"),
        ("a = ?", 5, "?"),
        ("a = @", 5, "@"),
        ("a = 9223372036854775809", 5, "9223372036854775809"),
        ("a = 1E", 5, "1E"),
        ("a = 1E+", 5, "1E"),
        ("[] = 1", 1, "[]"),
        ("[a = 1", 1, "[a = 1"),
        ("_a = 1", 1, "_"),
        ("a = 1;", 6, ";"),
        ("a = 1_0", 5, "1_0"),
        ("a = 1x", 5, "1x"),
        ("a = 'it''", 5, "'it''"),
        ("a = b²", 6, "²"),
        ("a = 1 AND\nb = = 2", 5, "="),
    ],
)
def test_bad_syntax_is_refused_with_its_place(expression, offset, token):
    with pytest.raises(ArgumentError) as caught:
        parse_predicate(expression)
    assert f"Token line offset = {offset}," in str(caught.value)
    assert f"Token in error = '{token}'" in str(caught.value)
    assert f"Token line number = {expression.count(chr(10)) + 1}," in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 400 + "1=1" + ")" * 400,
        "NOT " * 200 + "1=1",
        "-" * 1000 + "1=1",
        "p(" * 300 + "'a'" + ")" * 300 + "=1",
        "a = '" + "x" * 1024 + "'",
    ],
)
def test_depth_and_length_are_bounded(expression):
    with pytest.raises(ArgumentError):
        parse_predicate(expression)


def test_long_chains_are_no_matter():
    assert truth("+".join(["1"] * 500) + "=500") is True
    assert truth(" OR ".join(["1=0"] * 140) + " OR 1=1") is True


def test_parameters_are_bound_with_their_types():
    assert truth("quantity = @n", n=TypedValue("int", "7")) is True
    assert truth("quantity = @N", n=TypedValue("long", "7")) is True
    assert truth("price = @x", x=TypedValue("double", "2.5")) is True
    assert truth("urgent = @x", x=TypedValue("boolean", "true")) is True
    assert truth("when = @x", x=TypedValue("dateTime", "2026-01-01T00:00:00Z")) is True
    assert truth("span = @x", x=TypedValue("duration", "PT1H")) is True
    assert truth("color LIKE @x", x=TypedValue("string", "r%")) is True


def test_parameter_without_a_value_is_refused():
    with pytest.raises(ArgumentError, match="'@x' has no value"):
        compile_filter(SqlFilter("a = @x"))


def test_literal_mistakes_in_like_are_refused_at_once():
    for expression in ("a LIKE 1", "a LIKE 'b' ESCAPE 'xx'", "a LIKE 'b' ESCAPE 1"):
        with pytest.raises(ArgumentError):
            compile_filter(SqlFilter(expression))


def test_true_and_false_filters():
    assert compile_filter(TrueFilter())(MESSAGE) is True
    assert compile_filter(FalseFilter())(MESSAGE) is False


@pytest.mark.parametrize(
    ("rule", "passes"),
    [
        (CorrelationFilter(label="greeting"), True),
        (CorrelationFilter(label="Greeting"), False),
        (CorrelationFilter(message_id="m-1", to="somewhere", reply_to="back"), True),
        (CorrelationFilter(session_id="s", reply_to_session_id="rs"), True),
        (CorrelationFilter(content_type="text/plain", correlation_id="5"), True),
        (CorrelationFilter(label="greeting", to="elsewhere"), False),
        (CorrelationFilter(properties=(("color", TypedValue("string", "red")),)), True),
        (CorrelationFilter(properties=(("COLOR", TypedValue("string", "red")),)), True),
        (CorrelationFilter(properties=(("quantity", TypedValue("long", "7")),)), True),
        (CorrelationFilter(properties=(("quantity", TypedValue("double", "7")),)), True),
        (CorrelationFilter(properties=(("quantity", TypedValue("string", "7")),)), False),
        (CorrelationFilter(properties=(("urgent", TypedValue("boolean", "true")),)), True),
        (CorrelationFilter(properties=(("small", TypedValue("boolean", "true")),)), False),
        (CorrelationFilter(properties=(("span", TypedValue("duration", "PT1H")),)), True),
        (
            CorrelationFilter(
                properties=(("when", TypedValue("dateTime", "2026-01-01T01:00:00+01:00")),)
            ),
            True,
        ),
        (CorrelationFilter(properties=(("missing", TypedValue("int", "1")),)), False),
        (CorrelationFilter(properties=(("nothing", TypedValue("int", "1")),)), False),
        (CorrelationFilter(properties=(("list", TypedValue("int", "1")),)), False),
    ],
)
def test_correlation_filter(rule, passes):
    assert compile_filter(rule)(MESSAGE) is passes


def test_pattern_with_many_wildcards_is_quick():
    assert not like_pattern("%a" * 300 + "b").fullmatch("a" * 20_000)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a%b%c", "abc", True),
        ("a%b%c", "a-b-c-b-c", True),
        ("%ab", "aab", True),
        ("ab%ab", "ab", False),
        ("ab%ab", "abab", True),
        ("%_%", "", False),
        ("_%_", "ab", True),
        ("%%", "", True),
        ("a\nb", "a\nb", True),
        ("%.*%", "x.*y", True),
        ("%.*%", "xy", False),
    ],
)
def test_like_patterns(pattern, text, fits):
    assert bool(like_pattern(pattern).fullmatch(text)) is fits


def test_rule_is_checked_as_a_whole():
    check_rule(RuleDescription("r", SqlFilter("a=1"), SqlAction("SET a=2")))
    with pytest.raises(ArgumentError):
        check_rule(RuleDescription("r", SqlFilter("a=")))
    with pytest.raises(ArgumentError):
        check_rule(RuleDescription("r", TrueFilter(), SqlAction("SET a=")))


def test_out_of_range_time_is_a_filter_error():
    view = View({"t": Timestamp(2**62)})
    with pytest.raises(FilterError):
        compile_filter(SqlFilter("t = t"))(view)


def test_described_values_that_make_no_sense_are_a_filter_error():
    for value in (
        Described(Symbol("com.microsoft:timespan"), "x"),
        Described(Symbol("com.microsoft:timespan"), math.nan),
        Described(Symbol("com.microsoft:datetime-offset"), 2**63 - 1),
        Described(Symbol("other"), 1),
    ):
        with pytest.raises(FilterError):
            compile_filter(SqlFilter("t = t"))(View({"t": value}))
    view = View(
        {
            "u": Described(Symbol("com.microsoft:uri"), "http://x"),
            "d": Described(Symbol("com.microsoft:datetime-offset"), 639_028_224_000_000_000),
            "n": UInt(1),
        }
    )
    assert compile_filter(SqlFilter("u = 'http://x' AND n = 1"))(view)
    assert compile_filter(
        SqlFilter("d = @d", (("d", TypedValue("dateTime", "2026-01-01T00:00:00")),))
    )(view)
