"""Descriptions out of the XML that a client sent."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pairbus.broker.admin.atom import Element
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    AccessRight,
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    Pairs,
    QueueDescription,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    TypedValue,
    parse_duration,
    parse_typed,
)

T = TypeVar("T", QueueDescription, TopicDescription, SubscriptionDescription)
Reader = Callable[[Element], Any]


def _boolean(element: Element) -> bool:
    match element.text.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
    raise ArgumentError(f"{element.name}: '{element.text[:64]}' is neither true nor false.")


def _integer(element: Element) -> int:
    text = element.text.strip()
    if len(text) > 20 or not text.removeprefix("-").isdecimal():
        raise ArgumentError(f"{element.name}: '{text[:64]}' is not an integer.")
    return int(text)


def _duration(element: Element) -> timedelta:
    try:
        return parse_duration(element.text)
    except ArgumentError as error:
        raise ArgumentError(f"{element.name}: {error.description}") from None


def _text(element: Element) -> str | None:
    return element.text or None


def _path(element: Element) -> str | None:
    """A target of forwarding: clients send the whole address, entities know paths."""
    text = element.text.strip()
    if "://" not in text:
        return text or None
    try:
        return unquote(urlsplit(text).path).strip("/") or None
    except ValueError:
        raise ArgumentError(f"{element.name}: '{text[:260]}' is not an address.") from None


def _status(element: Element) -> EntityStatus:
    text = element.text.strip()
    for status in EntityStatus:
        if status.value.lower() == text.lower():
            return status
    raise ArgumentError(f"Status: an entity cannot be set to '{text[:64]}'.")


def _moment(element: Element) -> datetime | None:
    if not element.text.strip():
        return None
    value = parse_typed("dateTime", element.text)
    assert isinstance(value, datetime)
    return value


def _authorization_rules(element: Element) -> tuple[AuthorizationRule, ...]:
    return tuple(_authorization_rule(child) for child in element)


def _authorization_rule(element: Element) -> AuthorizationRule:
    def text(name: str, default: str = "") -> str:
        child = element.find(name)
        return default if child is None or child.is_nil else child.text

    def moment(name: str) -> datetime | None:
        child = element.find(name)
        return None if child is None or child.is_nil else _moment(child)

    rights = element.find("Rights")
    try:
        granted = tuple(AccessRight(right.text.strip()) for right in rights or ())
    except ValueError:
        raise ArgumentError("An authorization rule grants Send, Listen or Manage.") from None
    return AuthorizationRule(
        key_name=text("KeyName"),
        rights=granted,
        primary_key=text("PrimaryKey") or new_key(),
        secondary_key=text("SecondaryKey") or new_key(),
        type=element.attributes.get("type", "SharedAccessAuthorizationRule"),
        claim_type=text("ClaimType", "SharedAccessKey"),
        claim_value=text("ClaimValue", "None"),
        created_at_utc=moment("CreatedTime"),
        modified_at_utc=moment("ModifiedTime"),
    )


def new_key() -> str:
    """A key as the service makes them: 256 random bits."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


_COMMON: dict[str, tuple[str, Reader]] = {
    "DefaultMessageTimeToLive": ("default_message_time_to_live", _duration),
    "EnableBatchedOperations": ("enable_batched_operations", _boolean),
    "Status": ("status", _status),
    "UserMetadata": ("user_metadata", _text),
    "AutoDeleteOnIdle": ("auto_delete_on_idle", _duration),
}
_STORED: dict[str, tuple[str, Reader]] = {
    "MaxSizeInMegabytes": ("max_size_in_megabytes", _integer),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", _boolean),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window", _duration),
    "AuthorizationRules": ("authorization_rules", _authorization_rules),
    "EnablePartitioning": ("enable_partitioning", _boolean),
    "EnableExpress": ("enable_express", _boolean),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", _integer),
}
_RECEIVED: dict[str, tuple[str, Reader]] = {
    "LockDuration": ("lock_duration", _duration),
    "RequiresSession": ("requires_session", _boolean),
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", _boolean),
    "MaxDeliveryCount": ("max_delivery_count", _integer),
    "ForwardTo": ("forward_to", _path),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", _path),
}
_QUEUE = {**_COMMON, **_STORED, **_RECEIVED}
_TOPIC = {
    **_COMMON,
    **_STORED,
    "FilteringMessagesBeforePublishing": ("filtering_messages_before_publishing", _boolean),
    "SupportOrdering": ("support_ordering", _boolean),
}
_SUBSCRIPTION = {
    **_COMMON,
    **_RECEIVED,
    "DeadLetteringOnFilterEvaluationExceptions": (
        "dead_lettering_on_filter_evaluation_exceptions",
        _boolean,
    ),
}

#: What an update leaves as it is when the client does not mention it; the rest goes to its default.
_KEPT = (
    "requires_session",
    "requires_duplicate_detection",
    "enable_partitioning",
    "max_message_size_in_kilobytes",
)


def _read(element: Element, fields: dict[str, tuple[str, Reader]], start: T, old: T | None) -> T:
    values: dict[str, Any] = {}
    if old is not None:
        values = {name: getattr(old, name) for name in _KEPT if hasattr(old, name)}
    for child in element:
        if child.name in fields and not child.is_nil:
            name, reader = fields[child.name]
            values[name] = reader(child)
    return replace(start, **values)


def read_queue(element: Element, name: str, old: QueueDescription | None) -> QueueDescription:
    """The queue that a client describes, anew or in place of *old*."""
    return _read(element, _QUEUE, QueueDescription(old.name if old else name), old)


def read_topic(element: Element, name: str, old: TopicDescription | None) -> TopicDescription:
    """The topic that a client describes, anew or in place of *old*."""
    return _read(element, _TOPIC, TopicDescription(old.name if old else name), old)


def read_subscription(
    element: Element, topic_name: str, name: str, old: SubscriptionDescription | None
) -> SubscriptionDescription:
    """The subscription that a client describes, anew or in place of *old*."""
    start = (
        SubscriptionDescription(old.topic_name, old.name)
        if old
        else SubscriptionDescription(topic_name, name)
    )
    return _read(element, _SUBSCRIPTION, start, old)


def read_rule(element: Element, name: str) -> RuleDescription:
    """The rule that a client describes."""
    filter_element, action_element = element.find("Filter"), element.find("Action")
    rule = RuleDescription(name)
    if filter_element is not None and not filter_element.is_nil:
        rule = replace(rule, filter=_filter(filter_element))
    if action_element is not None and not action_element.is_nil:
        rule = replace(rule, action=_action(action_element))
    return rule


def _kind(element: Element) -> str:
    return element.attributes.get("type", "").rpartition(":")[2]


def _optional(element: Element, name: str) -> str | None:
    child = element.find(name)
    return None if child is None or child.is_nil else child.text


def _filter(element: Element) -> RuleFilter:
    match _kind(element):
        case "TrueFilter":
            return TrueFilter(_optional(element, "SqlExpression") or "1=1", _preprocess(element))
        case "FalseFilter":
            return FalseFilter(_optional(element, "SqlExpression") or "1=0", _preprocess(element))
        case "SqlFilter":
            return SqlFilter(*_sql(element))
        case "CorrelationFilter":
            return CorrelationFilter(
                correlation_id=_optional(element, "CorrelationId"),
                message_id=_optional(element, "MessageId"),
                to=_optional(element, "To"),
                reply_to=_optional(element, "ReplyTo"),
                label=_optional(element, "Label"),
                session_id=_optional(element, "SessionId"),
                reply_to_session_id=_optional(element, "ReplyToSessionId"),
                content_type=_optional(element, "ContentType"),
                properties=_pairs(element.find("Properties")),
            )
    raise ArgumentError(f"There is no filter of type '{_kind(element)[:64]}'.")


def _action(element: Element) -> SqlAction | None:
    match _kind(element):
        case "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            return SqlAction(*_sql(element))
    raise ArgumentError(f"There is no action of type '{_kind(element)[:64]}'.")


def _sql(element: Element) -> tuple[str, Pairs, bool | None, str | None]:
    return (
        _optional(element, "SqlExpression") or "",
        _pairs(element.find("Parameters")),
        _preprocess(element),
        _optional(element, "CompatibilityLevel"),
    )


def _preprocess(element: Element) -> bool | None:
    child = element.find("RequiresPreprocessing")
    return None if child is None or child.is_nil else _boolean(child)


def _pairs(element: Element | None) -> Pairs:
    pairs: list[tuple[str, TypedValue]] = []
    for child in element or ():
        key, value = child.find("Key"), child.find("Value")
        if key is None or value is None:
            raise ArgumentError("A parameter needs a Key and a Value.")
        type_name = _kind(value) or "string"
        pairs.append((key.text, TypedValue(type_name, value.text)))
    return tuple(pairs)
