"""The official JavaScript client against the embedded broker."""

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
    "many_senders",
    "websocket",
    "token",
]


@pytest.mark.parametrize(
    "scenario", [*SHORT, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_scenario_with_azure_service_bus(node: Callable[[str, str], None], scenario: str) -> None:
    node("service_bus.js", scenario)
