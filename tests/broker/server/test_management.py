"""Management requests that Python's SDK does not make, as clients in other languages do."""

import contextlib
import logging
import math
import time
from typing import Any

import pytest

from pairbus.amqp.events import Delivery, Disposed, Flowed
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.types import Int, Timestamp
from pairbus.broker import run
from pairbus.broker.entities.model import AccessRight, AuthorizationRule
from pairbus.broker.server.incoming import read_message
from pairbus.client import BulkConnection, RequestFailedError
from tests.broker.server.test_hardening import RawClient
from tests.sas import make_token


@pytest.fixture(scope="module")
def ns():
    with run() as ns:
        ns.create_queue("q")
        ns.create_topic("t")
        ns.create_subscription("t", "s")
        yield ns


@pytest.fixture
def connection(ns):
    with BulkConnection(ns.connection_string) as connection:
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
    listed = management.request("enumerate-rules", {"top": 2, "skip": 1})[1]["rules"]
    correlation, sql = (entry["rule-description"].value for entry in listed)
    assert correlation[2] == "correlation"
    assert correlation[0].value[4] == "x"
    assert correlation[0].value[8] == {"n": 1, "f": True, "s": "t"}
    assert (sql[0].value[0], sql[1].value[0], sql[2]) == ("a = 1", "SET b = 2", "sql")
    for name in ("sql", "correlation"):
        management.request("remove-rule", {"rule-name": name})
    assert rules(ns) == ["$Default"]


@pytest.mark.parametrize(
    ("operation", "body", "condition"),
    [
        ("enumerate-rules", {"top": 1, "skip": 0}, "com.microsoft:argument-error"),
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
        ("update-disposition",
         {"disposition-status": "abandoned", "lock-tokens": [], "properties-to-modify": [1]},
         "com.microsoft:argument-error"),
        ("peek-message", {"from-sequence-number": math.inf, "message-count": 1},
         "com.microsoft:argument-error"),
        ("peek-message", {"from-sequence-number": 0, "message-count": 0},
         "com.microsoft:argument-error"),
        ("batch-delete-messages",
         {"message-count": Int(-1), "enqueued-time-utc": Timestamp(2**50)},
         "com.microsoft:argument-error"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(connection, operation, body, condition) -> None:
    with pytest.raises(RequestFailedError) as caught:
        connection.management("q").request(operation, body)
    assert caught.value.condition == condition
    connection.management("q").peek(0, 1)  # and the link still works


def test_peek_can_leave_bodies_out(connection) -> None:
    body = Message.build(
        properties=Properties(message_id="m"), application_properties={"a": 1}, data=b"x" * 500
    )
    assert all(outcome.is_accepted for outcome in connection.sender("q").send_each([body.encode()]))
    request = {"from-sequence-number": 0, "message-count": 1}
    management = connection.management("q")
    [whole] = management.request("peek-message", request)[1]["messages"]
    short = {**request, "omit-message-body": True}
    [bare] = management.request("peek-message", short)[1]["messages"]
    assert Message.parse(whole["message"]).body == b"x" * 500
    shown = Message.parse(bare["message"])
    assert len(bare["message"]) < 300
    assert shown.body is None
    assert shown.properties is not None
    assert shown.message_annotations is not None
    assert (shown.properties.message_id, shown.application_properties) == ("m", {"a": 1})
    assert shown.message_annotations["x-opt-message-state"] == 0


@pytest.mark.parametrize(
    "properties",
    [None, Properties(), Properties(subject="s"), Properties(subject="s" * 300)],
    ids=["no section", "empty", "short", "long"],
)
def test_message_without_an_id_gets_one(connection, properties) -> None:
    sent = Message.build(properties=properties, data=b"x")
    message = read_message(sent.encode())
    stored = Message.parse(message.bare)
    assert message.message_id is not None
    assert stored.properties is not None
    assert len(message.message_id) == 32
    assert stored.properties.message_id == message.message_id
    assert stored.properties.subject == (properties.subject if properties else None)
    assert stored.body == b"x"


def test_messages_are_deleted_by_request(ns, connection) -> None:
    ns.create_queue("deleted")
    bodies = [Message.build(data=b"%d" % n).encode() for n in range(4)]
    connection.sender("deleted").send_each(bodies)
    [locked] = connection.receiver("deleted").receive(1, 5)
    management = connection.management("deleted")
    request = {"message-count": Int(2), "enqueued-time-utc": Timestamp(0)}
    assert management.request("batch-delete-messages", request)[0] == 204
    request["enqueued-time-utc"] = Timestamp(2**50)
    assert management.request("batch-delete-messages", request) == (200, {"message-count": 2})
    left = [message.sequence_number for message in management.peek(0, 10)]
    assert left == [locked.sequence_number, 4]


def test_request_that_is_no_message_is_rejected_and_the_others_are_answered(ns) -> None:
    client = RawClient(ns.port)
    with contextlib.closing(client):
        name = "$cbs"
        sender = client.engine.attach_sender(client.session, "out", target=Target(name))
        receiver = client.engine.attach_receiver(client.session, "in", source=Source(name))
        client.until(Flowed)
        client.engine.flow(receiver, 10)
        client.engine.transfer(sender, b"noise", b"1")
        assert client.until(Disposed).state.error.condition == "com.microsoft:argument-error"
        request = Message.build(
            properties=Properties(message_id="m"),
            application_properties={"operation": "put-token", "name": "q"},
            value=b"\xff",
        )
        client.engine.transfer(sender, request.encode(), b"2")
        answer = Message.parse(client.until(Delivery).payload)
        assert answer.application_properties is not None
        assert answer.application_properties["status-code"] == 401


def test_an_operation_that_is_not_supported_is_logged_once_by_name(connection, caplog) -> None:
    caplog.set_level(logging.WARNING, "pairbus.broker")
    management = connection.management("q")
    for _ in range(2):
        with pytest.raises(RequestFailedError):
            management.request("make-tea", {})
    named = [r for r in caplog.records if "make-tea" in r.getMessage()]
    assert len(named) == 1


def connection_with(ns, path: str, right: AccessRight) -> BulkConnection:
    """A connection by a token of the entity's key that has one claim."""
    token = make_token(
        f"sb://127.0.0.1:{ns.port}/{path}", right.value, f"key-{right.value}",
        expires_at=time.time() + 600,
    )  # fmt: skip
    return BulkConnection(
        f"Endpoint=sb://127.0.0.1:{ns.port};SharedAccessSignature={token};"
        "UseDevelopmentEmulator=true"
    )


def keys(*rights: AccessRight) -> tuple[AuthorizationRule, ...]:
    return tuple(AuthorizationRule(one.value, (one,), f"key-{one.value}") for one in rights)


def test_each_operation_needs_its_own_claim(ns) -> None:
    ns.create_queue("guarded", authorization_rules=keys(AccessRight.SEND))
    with connection_with(ns, "guarded", AccessRight.SEND) as connection:
        management = connection.management("guarded")
        with pytest.raises(RequestFailedError, match="Listen") as caught:
            management.peek(0, 1)
        assert caught.value.condition == "amqp:unauthorized-access"
        status, _ = management.request("schedule-message", {"messages": []})
        assert status == 200


def test_rules_are_managed_with_listen_and_not_with_send(ns) -> None:
    ns.create_topic("news", authorization_rules=keys(AccessRight.SEND, AccessRight.LISTEN))
    ns.create_subscription("news", "s")
    path = "news/Subscriptions/s"
    added = {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "a = 1"}}}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("add-rule", added),
        ("enumerate-rules", {"top": 10, "skip": 0}),
        ("remove-rule", {"rule-name": "r"}),
    ]
    with connection_with(ns, "news", AccessRight.SEND) as connection:
        for operation, body in requests:
            with pytest.raises(RequestFailedError, match="Listen") as caught:
                connection.management(path).request(operation, body)
            assert caught.value.condition == "amqp:unauthorized-access"
    with connection_with(ns, "news", AccessRight.LISTEN) as connection:
        for operation, body in requests:
            connection.management(path).request(operation, body)
