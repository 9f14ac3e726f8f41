"""Whatever a client sends, the administration API answers; it never breaks."""

from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.admin.api import AdminApi
from pairbus.broker.admin.atom import parse_xml
from pairbus.broker.auth.sas import ALL_RIGHTS, KeyRing
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.broker.entities.model_properties import columns
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.server.http import Request
from tests.sas import make_token

KEYS = KeyRing((AuthorizationRule("Root", ALL_RIGHTS, "key"),))
TOKEN = make_token("sb://host", "Root", "key", expires_at=2000)


def api():
    namespace = Namespace("noise")
    namespace.admin.create(QueueDescription("q"))
    namespace.admin.create(TopicDescription("t"))
    namespace.admin.create(SubscriptionDescription("t", "s"))
    return AdminApi(namespace.admin, KEYS, lambda: 1000.0, 1000.0, lambda path: None)


def ask(server, method, target, body=b"", **headers):
    headers = {"host": "host:1", "authorization": TOKEN} | headers
    response = server.handle(Request(method, target, headers, body))
    assert response.status in (200, 201, 400, 401, 403, 404, 405, 409, 412), response
    if response.body:
        ElementTree.fromstring(response.body)
    return response


text = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\n"), max_size=12
)
scalars = st.one_of(
    text,
    st.integers().map(str),
    st.sampled_from(["true", "false", "PT1M", "P1D", "-PT1S", "Active", "q", "sb://host/q", "t"]),
)
names = sorted(
    {*columns(QueueDescription), *columns(TopicDescription), *columns(SubscriptionDescription)}
)
leaves = st.builds(
    lambda name, value: f"<{name}>{escape(value)}</{name}>", st.sampled_from(names), scalars
)
rights = st.lists(st.sampled_from(["Send", "Listen", "Manage", "x"]), max_size=4).map(
    lambda given: "".join(f"<AccessRights>{right}</AccessRights>" for right in given)
)
access = st.builds(
    lambda rights, name: (
        "<AuthorizationRules><AuthorizationRule>"
        f"<Rights>{rights}</Rights><KeyName>{escape(name)}</KeyName>"
        "</AuthorizationRule></AuthorizationRules>"
    ),
    rights,
    text,
)
values = st.builds(
    lambda key, kind, value: (
        "<KeyValueOfstringanyType>"
        f'<Key>{escape(key)}</Key><Value type="x:{kind}">{escape(value)}</Value>'
        "</KeyValueOfstringanyType>"
    ),
    text,
    st.sampled_from(["string", "int", "double", "boolean", "dateTime", "duration", "other"]),
    scalars,
)
sql = st.one_of(text, st.sampled_from(["a = 1", "a = @p", "SET a = @p", "REMOVE a", "1=1"]))
rules = st.builds(
    lambda kind, action, expression, pairs: (
        f'<Filter type="{kind}"><SqlExpression>{escape(expression)}</SqlExpression>'
        f"<Label>{escape(expression)}</Label><Parameters>{''.join(pairs)}</Parameters>"
        f"<Properties>{''.join(pairs)}</Properties></Filter>"
        f'<Action type="{action}"><SqlExpression>{escape(expression)}</SqlExpression>'
        f"<Parameters>{''.join(pairs)}</Parameters></Action>"
    ),
    st.sampled_from(["SqlFilter", "TrueFilter", "FalseFilter", "CorrelationFilter", "x"]),
    st.sampled_from(["SqlRuleAction", "EmptyRuleAction", "x"]),
    sql,
    st.lists(values, max_size=3),
)
kinds = ["QueueDescription", "TopicDescription", "SubscriptionDescription", "RuleDescription"]
bodies = st.builds(
    lambda kind, parts: (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content>'
        f"<{kind}>{''.join(parts)}</{kind}></content></entry>"
    ).encode(),
    st.sampled_from(kinds),
    st.lists(st.one_of(leaves, access, rules), max_size=5),
)
segments = st.one_of(
    st.sampled_from(["q", "t", "s", "r", "new", "subscriptions", "rules", "$Default"]),
    st.sampled_from(["$Resources", "queues", "topics", "$namespaceinfo", "%2F", "%00", "..", ""]),
    text.map(lambda value: value.replace("?", "")),
)
targets = st.lists(segments, max_size=5).map(lambda parts: "/" + "/".join(parts))
methods = st.sampled_from(["GET", "PUT", "DELETE", "POST", "X"])
FEW = settings(max_examples=settings().max_examples * 2 // 5)
matches = st.sampled_from([{}, {"if-match": "*"}, {"if-match": '"x"'}])


@FEW
@given(st.lists(st.tuples(methods, targets, bodies, matches), min_size=1, max_size=4))
def test_any_request_gets_an_answer(requests):
    server = api()
    for method, target, body, match in requests:
        ask(server, method, target, body, **match)
    for target in (
        "/q",
        "/t",
        "/t/subscriptions",
        "/t/subscriptions/s/rules",
        "/$Resources/queues",
    ):
        ask(server, "GET", target)


@pytest.mark.parametrize(
    "target", ["/q", "/new", "/t", "/t/subscriptions/s", "/t/subscriptions/s/rules/r"]
)
@FEW
@given(bodies, matches)
def test_any_body_gets_an_answer_and_what_was_taken_can_be_read(target, body, match):
    server = api()
    status = ask(server, "PUT", target, body, **match).status
    assert status in (200, 201, 400, 401, 404, 409, 412)
    if status in (200, 201):
        assert ask(server, "GET", target).status == 200


@given(st.binary(max_size=100) | st.text("<>/a&;!?[]-=\"' DOCTYPE", max_size=60).map(str.encode))
def test_noise_is_no_xml(noise):
    try:
        parse_xml(noise)
    except ArgumentError:
        pass


@given(text, text)
def test_any_query_and_any_header_get_an_answer(query, header):
    server = api()
    ask(server, "GET", f"/$Resources/queues?{query}&$skip={header}")
    response = server.handle(Request("GET", "/q", {"host": header, "authorization": query}))
    assert response.status == 401
