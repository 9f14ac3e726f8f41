"""Descriptions as the XML that a client reads, elements in the order of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pairbus.broker.admin.atom import (
    COUNTS,
    INSTANCE,
    SCHEMA,
    SERVICE_BUS,
    boolean,
    leaf,
    quote,
    tag,
    timestamp,
)
from pairbus.broker.entities.model import (
    AuthorizationRule,
    CorrelationFilter,
    FalseFilter,
    Pairs,
    QueueDescription,
    RuleDescription,
    RuleFilter,
    RuntimeProperties,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    format_duration,
)

_ROOT = f' xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}"'

Address = Callable[[str], str]
"""Makes the address of an entity of its path, as the client knows the namespace."""


def write_queue(
    queue: QueueDescription, runtime: RuntimeProperties, address: Address, *, has_message_size: bool
) -> str:
    """A queue as XML."""
    return tag(
        "QueueDescription",
        leaf("LockDuration", format_duration(queue.lock_duration))
        + leaf("MaxSizeInMegabytes", str(queue.max_size_in_megabytes))
        + leaf("RequiresDuplicateDetection", boolean(queue.requires_duplicate_detection))
        + leaf("RequiresSession", boolean(queue.requires_session))
        + leaf("DefaultMessageTimeToLive", format_duration(queue.default_message_time_to_live))
        + leaf(
            "DeadLetteringOnMessageExpiration",
            boolean(queue.dead_lettering_on_message_expiration),
        )
        + leaf(
            "DuplicateDetectionHistoryTimeWindow",
            format_duration(queue.duplicate_detection_history_time_window),
        )
        + leaf("MaxDeliveryCount", str(queue.max_delivery_count))
        + leaf("EnableBatchedOperations", boolean(queue.enable_batched_operations))
        + leaf("SizeInBytes", str(runtime.size_in_bytes))
        + leaf("MessageCount", str(runtime.total_message_count))
        + leaf("IsAnonymousAccessible", "false")
        + _authorization_rules(queue.authorization_rules)
        + leaf("Status", queue.status.value)
        + _forward("ForwardTo", queue.forward_to, address)
        + _optional("UserMetadata", queue.user_metadata)
        + _times(runtime)
        + leaf("SupportOrdering", "true")
        + _counts(runtime)
        + leaf("AutoDeleteOnIdle", format_duration(queue.auto_delete_on_idle))
        + leaf("EnablePartitioning", boolean(queue.enable_partitioning))
        + leaf("EntityAvailabilityStatus", queue.availability_status.value)
        + leaf("EnableExpress", boolean(queue.enable_express))
        + _forward(
            "ForwardDeadLetteredMessagesTo", queue.forward_dead_lettered_messages_to, address
        )
        + _message_size(queue.max_message_size_in_kilobytes, has_message_size),
        _ROOT,
    )


def write_topic(
    topic: TopicDescription, runtime: RuntimeProperties, *, has_message_size: bool
) -> str:
    """A topic as XML."""
    return tag(
        "TopicDescription",
        leaf("DefaultMessageTimeToLive", format_duration(topic.default_message_time_to_live))
        + leaf("MaxSizeInMegabytes", str(topic.max_size_in_megabytes))
        + leaf("RequiresDuplicateDetection", boolean(topic.requires_duplicate_detection))
        + leaf(
            "DuplicateDetectionHistoryTimeWindow",
            format_duration(topic.duplicate_detection_history_time_window),
        )
        + leaf("EnableBatchedOperations", boolean(topic.enable_batched_operations))
        + leaf("SizeInBytes", str(runtime.size_in_bytes))
        + leaf(
            "FilteringMessagesBeforePublishing",
            boolean(topic.filtering_messages_before_publishing),
        )
        + leaf("IsAnonymousAccessible", "false")
        + _authorization_rules(topic.authorization_rules)
        + leaf("Status", topic.status.value)
        + _optional("UserMetadata", topic.user_metadata)
        + _times(runtime)
        + leaf("SupportOrdering", boolean(topic.support_ordering))
        + _counts(runtime)
        + leaf("SubscriptionCount", str(runtime.subscription_count))
        + leaf("AutoDeleteOnIdle", format_duration(topic.auto_delete_on_idle))
        + leaf("EnablePartitioning", boolean(topic.enable_partitioning))
        + leaf("EntityAvailabilityStatus", topic.availability_status.value)
        + leaf("EnableSubscriptionPartitioning", "false")
        + leaf("EnableExpress", boolean(topic.enable_express))
        + _message_size(topic.max_message_size_in_kilobytes, has_message_size),
        _ROOT,
    )


def write_subscription(
    subscription: SubscriptionDescription, runtime: RuntimeProperties, address: Address
) -> str:
    """A subscription as XML."""
    return tag(
        "SubscriptionDescription",
        leaf("LockDuration", format_duration(subscription.lock_duration))
        + leaf("RequiresSession", boolean(subscription.requires_session))
        + leaf(
            "DefaultMessageTimeToLive",
            format_duration(subscription.default_message_time_to_live),
        )
        + leaf(
            "DeadLetteringOnMessageExpiration",
            boolean(subscription.dead_lettering_on_message_expiration),
        )
        + leaf(
            "DeadLetteringOnFilterEvaluationExceptions",
            boolean(subscription.dead_lettering_on_filter_evaluation_exceptions),
        )
        + leaf("MessageCount", str(runtime.total_message_count))
        + leaf("MaxDeliveryCount", str(subscription.max_delivery_count))
        + leaf("EnableBatchedOperations", boolean(subscription.enable_batched_operations))
        + leaf("Status", subscription.status.value)
        + _forward("ForwardTo", subscription.forward_to, address)
        + _times(runtime)
        + _optional("UserMetadata", subscription.user_metadata)
        + _counts(runtime)
        + _forward(
            "ForwardDeadLetteredMessagesTo",
            subscription.forward_dead_lettered_messages_to,
            address,
        )
        + leaf("AutoDeleteOnIdle", format_duration(subscription.auto_delete_on_idle))
        + leaf("EntityAvailabilityStatus", subscription.availability_status.value),
        _ROOT,
    )


def write_rule(rule: RuleDescription) -> str:
    """A rule as XML."""
    created = rule.created_at_utc
    return tag(
        "RuleDescription",
        _filter(rule.filter)
        + _action(rule.action)
        + (leaf("CreatedAt", timestamp(created)) if created else "")
        + leaf("Name", rule.name),
        _ROOT,
    )


def _filter(description: RuleFilter) -> str:
    match description:
        case CorrelationFilter():
            return tag(
                "Filter",
                _optional("CorrelationId", description.correlation_id)
                + _optional("MessageId", description.message_id)
                + _optional("To", description.to)
                + _optional("ReplyTo", description.reply_to)
                + _optional("Label", description.label)
                + _optional("SessionId", description.session_id)
                + _optional("ReplyToSessionId", description.reply_to_session_id)
                + _optional("ContentType", description.content_type)
                + _pairs("Properties", description.properties),
                ' i:type="CorrelationFilter"',
            )
        case SqlFilter():
            return tag("Filter", _sql(description), ' i:type="SqlFilter"')
        case TrueFilter() | FalseFilter():
            return tag(
                "Filter",
                leaf("SqlExpression", description.sql_expression)
                + leaf("CompatibilityLevel", "20")
                + _preprocess(description.requires_preprocessing),
                f' i:type="{type(description).__name__}"',
            )


def _action(action: SqlAction | None) -> str:
    if action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    return tag("Action", _sql(action), ' i:type="SqlRuleAction"')


def _sql(part: SqlFilter | SqlAction) -> str:
    return (
        leaf("SqlExpression", part.sql_expression)
        + _optional("CompatibilityLevel", part.compatibility_level)
        + _pairs("Parameters", part.parameters)
        + _preprocess(part.requires_preprocessing)
    )


def _preprocess(value: bool | None) -> str:
    return "" if value is None else leaf("RequiresPreprocessing", boolean(value))


def _pairs(name: str, pairs: Pairs) -> str:
    if not pairs:
        return ""
    return tag(
        name,
        "".join(
            tag(
                "KeyValueOfstringanyType",
                leaf("Key", key)
                + leaf(
                    "Value",
                    value.text,
                    f' xmlns:d6p1="{SCHEMA}" i:type="d6p1:{quote(value.type)}"',
                ),
            )
            for key, value in pairs
        ),
    )


def _authorization_rules(rules: Iterable[AuthorizationRule]) -> str:
    return tag("AuthorizationRules", "".join(_authorization_rule(rule) for rule in rules))


def _authorization_rule(rule: AuthorizationRule) -> str:
    rights = "".join(leaf("AccessRights", right.value) for right in rule.rights)
    return tag(
        "AuthorizationRule",
        leaf("ClaimType", rule.claim_type)
        + leaf("ClaimValue", rule.claim_value)
        + tag("Rights", rights)
        + (leaf("CreatedTime", timestamp(rule.created_at_utc)) if rule.created_at_utc else "")
        + (leaf("ModifiedTime", timestamp(rule.modified_at_utc)) if rule.modified_at_utc else "")
        + leaf("KeyName", rule.key_name)
        + leaf("PrimaryKey", rule.primary_key)
        + leaf("SecondaryKey", rule.secondary_key),
        f' i:type="{quote(rule.type)}"',
    )


def _optional(name: str, value: str | None) -> str:
    return "" if value is None else leaf(name, value)


def _forward(name: str, path: str | None, address: Address) -> str:
    return "" if path is None else leaf(name, address(path))


def _message_size(value: int, has_message_size: bool) -> str:
    return leaf("MaxMessageSizeInKilobytes", str(value)) if has_message_size else ""


def _times(runtime: RuntimeProperties) -> str:
    return (
        leaf("CreatedAt", timestamp(runtime.created_at_utc))
        + leaf("UpdatedAt", timestamp(runtime.updated_at_utc))
        + leaf("AccessedAt", timestamp(runtime.accessed_at_utc))
    )


def _counts(runtime: RuntimeProperties) -> str:
    return tag(
        "CountDetails",
        leaf("d2p1:ActiveMessageCount", str(runtime.active_message_count))
        + leaf("d2p1:DeadLetterMessageCount", str(runtime.dead_letter_message_count))
        + leaf("d2p1:ScheduledMessageCount", str(runtime.scheduled_message_count))
        + leaf("d2p1:TransferMessageCount", str(runtime.transfer_message_count))
        + leaf(
            "d2p1:TransferDeadLetterMessageCount",
            str(runtime.transfer_dead_letter_message_count),
        ),
        f' xmlns:d2p1="{COUNTS}"',
    )
