"""Each role works with exactly the rights that the documentation names, on exactly those entities.

The keys are those of single entities, not of a namespace: nothing else can be reached with them.
"""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, events, pair_namespace
from pairbus.administration import admin_client
from pairbus.broker.entities.model import AccessRight, AuthorizationRule
from pairbus.exceptions import PairingError
from tests.pairing._sync.conftest import BACKLOG, Seen

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def with_right(namespace, name, right):
    """Create a queue with a key that gives this right on it, and no other."""
    rule = AuthorizationRule("role", (right,), "role-key", "role-other-key")
    namespace.create_queue(name, authorization_rules=(rule,))


def as_role(namespace):
    """The connection string with the role's key."""
    text = namespace.connection_string.replace("RootManageSharedAccessKey", "role")
    return text.replace("SAS_KEY_VALUE", "role-key")


@pytest.fixture
def sides():
    with broker.run("contoso") as primary, broker.run("backup") as secondary:
        yield primary, secondary


def paired(primary, secondary, seen, *, text=None, **options):
    return pair_namespace(
        ServiceBusClient.from_connection_string(as_role(primary)),
        SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(text or as_role(secondary)),
            primary_namespace="contoso",
            backlog_queue_count=2,
            failover_interval=0,
            ping_primary_interval=1,
            observers=[seen],
            **options,
        ),
    )


def test_application_needs_send_on_its_entities_and_on_the_backlog_queues(sides):
    primary, secondary = sides
    with_right(primary, "orders", AccessRight.SEND)
    for number in range(2):
        with_right(secondary, f"{BACKLOG}/{number}", AccessRight.SEND)
    seen = Seen()

    with paired(primary, secondary, seen) as client, client.get_queue_sender("orders") as sender:
        seen.wait(events.Protected) if client.status().unprotected else None
        sender.send_messages(ServiceBusMessage("healthy"))
        primary.kill()
        sender.send_messages(ServiceBusMessage("failed over"))
        primary.restart()
        seen.wait(events.Restored)
        sender.send_messages(ServiceBusMessage("restored"))
        counts = client.status().entity("orders").counts

    assert (counts.sent_primary, counts.sent_backlog) == (2, 1)
    assert counts.pings >= 1


def test_application_without_send_on_the_backlog_queues_is_told_before_an_outage(sides):
    primary, secondary = sides
    with_right(primary, "orders", AccessRight.SEND)
    for number in range(2):
        with_right(secondary, f"{BACKLOG}/{number}", AccessRight.LISTEN)
    seen = Seen()

    with paired(primary, secondary, seen):
        reason = seen.wait(events.Unprotected).reason

    assert "right Send" in reason
    assert "role-key" not in reason


def test_operator_needs_manage_on_the_secondary_to_create_the_backlog_queues(sides):
    primary, secondary = sides
    with_right(primary, "orders", AccessRight.SEND)
    for right in (AccessRight.SEND, AccessRight.LISTEN):
        with_right(secondary, f"other-{right.name.lower()}", right)

    with (
        admin_client(as_role(secondary)) as admin,
        pytest.raises(PairingError, match="they need the right Manage"),
    ):
        paired(primary, secondary, Seen(), secondary_admin=admin, require_secondary=True)

    # The root key of the secondary has Manage; the operator has no key of the primary.
    root = secondary.connection_string
    with admin_client(root) as admin:
        options = {"text": root, "secondary_admin": admin, "require_secondary": True}
        paired(primary, secondary, Seen(), **options).close()
        names = {queue.name for queue in admin.list_queues()}
    assert {f"{BACKLOG}/0", f"{BACKLOG}/1"} <= names
