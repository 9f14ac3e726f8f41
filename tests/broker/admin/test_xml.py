"""XML of the administration API: order of the elements, harmful documents."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pairbus.broker.admin.atom import parse_xml
from pairbus.broker.admin.entity_xml import read_description, write_description
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    AccessRight,
    AuthorizationRule,
    QueueDescription,
    RuntimeProperties,
    SubscriptionDescription,
    TopicDescription,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
RULE = AuthorizationRule("k", (AccessRight.SEND,), "p", "s", created_at_utc=NOW)
FORWARDED: dict[str, Any] = {
    "forward_to": "x",
    "forward_dead_lettered_messages_to": "y",
    "user_metadata": "<m>",
}
QUEUE = QueueDescription("q", authorization_rules=(RULE,), requires_session=True, **FORWARDED)
TOPIC = TopicDescription("t", authorization_rules=(RULE,), user_metadata="m")
SUBSCRIPTION = SubscriptionDescription("t", "s", **FORWARDED)

#: The order of the service's data contracts. Clients of other languages read by position.
ORDER = {
    QUEUE: """LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession
        DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
        DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations SizeInBytes
        MessageCount IsAnonymousAccessible AuthorizationRules Status ForwardTo UserMetadata
        CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle
        EnablePartitioning EntityAvailabilityStatus EnableExpress ForwardDeadLetteredMessagesTo
        MaxMessageSizeInKilobytes""",
    TOPIC: """DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection
        DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes
        FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status
        UserMetadata CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount
        AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
        EnableSubscriptionPartitioning EnableExpress MaxMessageSizeInKilobytes""",
    SUBSCRIPTION: """LockDuration RequiresSession DefaultMessageTimeToLive
        DeadLetteringOnMessageExpiration DeadLetteringOnFilterEvaluationExceptions MessageCount
        MaxDeliveryCount EnableBatchedOperations Status ForwardTo CreatedAt UpdatedAt AccessedAt
        UserMetadata CountDetails ForwardDeadLetteredMessagesTo AutoDeleteOnIdle
        EntityAvailabilityStatus""",
}


def written(description, api_version="2024-05"):
    runtime = RuntimeProperties(NOW, NOW, NOW)
    text = write_description(description, runtime, lambda path: f"sb://h/{path}", api_version)
    return parse_xml(text.encode())


@pytest.mark.parametrize("description", ORDER, ids=lambda d: type(d).__name__)
def test_elements_are_written_in_the_order_of_the_service(description):
    assert [child.name for child in written(description)] == ORDER[description].split()


@pytest.mark.parametrize("description", ORDER, ids=lambda d: type(d).__name__)
def test_written_description_is_read_back_equal(description):
    names = (description.topic_name,) if isinstance(description, SubscriptionDescription) else ()
    start = type(description)(*names, description.name)
    assert read_description(written(description), start, None, "2024-05") == description


def test_message_size_is_left_out_before_the_version_that_introduced_it():
    assert written(QUEUE, "2017-04").find("MaxMessageSizeInKilobytes") is None
    with pytest.raises(ArgumentError, match="needs api-version 2021-05 or later"):
        read_description(written(QUEUE), QUEUE, None, "2017-04")


@pytest.mark.parametrize(
    "document",
    [
        b"<!DOCTYPE a><a/>",
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        b'<!DOCTYPE a [<!ENTITY % x "y">%x;]><a/>',
        b"<a>&x;</a>",
        b"<?pi x?><a/>",
    ],
)
def test_document_types_and_entities_are_refused(document):
    with pytest.raises(ArgumentError):
        parse_xml(document)
