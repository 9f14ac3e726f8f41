"""Clients in JavaScript: the official one, and rhea, which knows nothing of Service Bus."""

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.clients

#: Runs in `make test` too; the other scenarios only in `make test-all`.
SHORT = ["administration", "send", "sessions", "rules"]
LONG = [
    "batches",
    "schedule",
    "peek_lock",
    "receive_and_delete",
    "next_session_timeout",
    "dead_letters",
    "subscribe",
    "iterator",
    "lock_renewal",
    "entity_key",
    "many_senders",
    "websocket",
    "token",
]
Node = Callable[[str, str], None]


@pytest.mark.parametrize("scenario", SHORT)
def test_azure_service_bus(node: Node, scenario: str) -> None:
    node("service_bus.js", scenario)


@pytest.mark.long
@pytest.mark.parametrize("scenario", LONG)
def test_more_of_azure_service_bus(node: Node, scenario: str) -> None:
    node("service_bus.js", scenario)


@pytest.mark.parametrize("scenario", ["plain"])
def test_rhea(node: Node, scenario: str) -> None:
    node("rhea.js", scenario)


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["plain_over_tls", "wrong_key", "many_sessions"])
def test_more_of_rhea(node: Node, scenario: str) -> None:
    node("rhea.js", scenario)
