"""Management requests that Python's SDK does not make, as clients in other languages do."""

import logging

import pytest

from pairbus.broker import run
from pairbus.broker.auth.sas import make_token
from pairbus.client import LeanConnection, RequestFailedError


@pytest.fixture(scope="module")
def ns():
    with run() as ns:
        ns.create_queue("q")
        ns.create_topic("t")
        ns.create_subscription("t", "s")
        yield ns


@pytest.fixture
def connection(ns):
    with LeanConnection(ns.connection_string) as connection:
        yield connection


def rules(ns) -> list[str]:
    return ns.do(lambda n: [rule.name for rule in n.admin.list_rules("t", "s")])


def test_rules_are_added_and_removed(ns, connection) -> None:
    management = connection.management("t/Subscriptions/s")
    management.request(
        "add-rule",
        {
            "rule-name": "sql",
            "rule-description": {
                "sql-filter": {"expression": "a = 1"},
                "sql-rule-action": {"expression": "SET b = 2"},
            },
        },
    )
    management.request(
        "add-rule",
        {
            "rule-name": "correlation",
            "rule-description": {
                "correlation-filter": {"label": "x", "properties": {"n": 1, "f": True, "s": "t"}}
            },
        },
    )
    assert rules(ns) == ["$Default", "correlation", "sql"]
    for name in ("sql", "correlation"):
        management.request("remove-rule", {"rule-name": name})
    assert rules(ns) == ["$Default"]


@pytest.mark.parametrize(
    ("operation", "body", "condition"),
    [
        ("enumerate-rules", {"top": 1, "skip": 0}, "amqp:not-implemented"),
        ("make-coffee", {}, "amqp:not-implemented"),
        ("peek-message", {}, "com.microsoft:argument-error"),
        ("peek-message", {"from-sequence-number": "x", "message-count": 1},
         "com.microsoft:argument-error"),
        ("update-disposition", {"disposition-status": "eaten", "lock-tokens": []},
         "com.microsoft:argument-error"),
        ("schedule-message", {"messages": [{"message": b"\x00noise"}]},
         "com.microsoft:argument-error"),
        ("renew-session-lock", {"session-id": "s"}, "amqp:not-allowed"),
        ("add-rule", {"rule-name": "r", "rule-description": {}},
         "com.microsoft:argument-error"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(connection, operation, body, condition) -> None:
    with pytest.raises(RequestFailedError) as caught:
        connection.management("q").request(operation, body)
    assert caught.value.condition == condition
    connection.management("q").peek(0, 1)  # and the link still works


def test_an_operation_that_is_not_supported_is_logged_once_by_name(connection, caplog) -> None:
    caplog.set_level(logging.WARNING, "pairbus.broker")
    management = connection.management("q")
    for _ in range(2):
        with pytest.raises(RequestFailedError):
            management.request("batch-delete-messages", {})
    named = [r for r in caplog.records if "batch-delete-messages" in r.getMessage()]
    assert len(named) == 1


def test_each_operation_needs_its_own_claim(ns) -> None:
    import time

    from pairbus.broker.entities.model import AccessRight, AuthorizationRule

    rule = AuthorizationRule("sends", (AccessRight.SEND,), "key-of-the-entity")
    ns.create_queue("guarded", authorization_rules=(rule,))
    token = make_token(
        f"sb://127.0.0.1:{ns.port}/guarded", "sends", "key-of-the-entity",
        expires_at=time.time() + 60,
    )  # fmt: skip
    text = (
        f"Endpoint=sb://127.0.0.1:{ns.port};SharedAccessSignature={token};"
        "UseDevelopmentEmulator=true"
    )
    with LeanConnection(text) as connection:
        management = connection.management("guarded")
        with pytest.raises(RequestFailedError, match="Listen") as caught:
            management.peek(0, 1)
        assert caught.value.condition == "amqp:unauthorized-access"
        assert management.schedule([]) == []
