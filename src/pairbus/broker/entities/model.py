"""What an entity is: descriptions of queues, topics, subscriptions and rules.

The dataclasses are frozen and their fields are named as in the properties objects of
``azure.servicebus.management``, so that what a user sets is found under the name the user knows.
A description is plain data: :meth:`validated` checks it against the limits of the service and
returns it with the service's defaults filled in; :func:`check_update` says what may not change;
:func:`check_forwarding` needs to look at the other entities of the namespace.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model_limits import (
    DEFAULT_MAX_MESSAGE_KILOBYTES,
    MAX_DELIVERY_COUNT,
    MAX_USER_METADATA,
    check_delivery_count,
    check_express,
    check_idle,
    check_lock,
    check_message_size,
    check_metadata,
    check_name,
    check_path,
    check_size,
    check_targets,
    check_ttl,
    check_window,
    entity_key,
    subscription_path,
)
from pairbus.broker.entities.model_rules import (
    DEFAULT_RULE,
    AccessRight,
    AuthorizationRule,
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
    TrueFilter,
    check_authorization_rules,
)
from pairbus.broker.entities.model_values import (
    MAX_DURATION,
    Pairs,
    Scalar,
    TypedValue,
    format_duration,
    parse_duration,
    parse_typed,
)

__all__ = [
    "DEFAULT_MAX_MESSAGE_KILOBYTES",
    "DEFAULT_RULE",
    "MAX_DELIVERY_COUNT",
    "MAX_DURATION",
    "MAX_USER_METADATA",
    "AccessRight",
    "AuthorizationRule",
    "AvailabilityStatus",
    "CorrelationFilter",
    "EntityDescription",
    "EntityStatus",
    "FalseFilter",
    "Pairs",
    "QueueDescription",
    "RuleDescription",
    "RuleFilter",
    "RuntimeProperties",
    "Scalar",
    "SqlAction",
    "SqlFilter",
    "SubscriptionDescription",
    "TopicDescription",
    "TrueFilter",
    "TypedValue",
    "check_forwarding",
    "check_name",
    "check_path",
    "check_update",
    "entity_key",
    "format_duration",
    "parse_duration",
    "parse_typed",
    "subscription_path",
]


class EntityStatus(enum.StrEnum):
    """What an entity lets its users do."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        """Whether messages may be sent to the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        """Whether messages may be received from the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class AvailabilityStatus(enum.StrEnum):
    """Whether the service can serve the entity; here it always can."""

    AVAILABLE = "Available"


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue as its owner described it."""

    name: str
    lock_duration: timedelta = timedelta(minutes=1)
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: timedelta = MAX_DURATION
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    user_metadata: str | None = None
    auto_delete_on_idle: timedelta = MAX_DURATION
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int = DEFAULT_MAX_MESSAGE_KILOBYTES
    availability_status: AvailabilityStatus = AvailabilityStatus.AVAILABLE

    def validated(self) -> QueueDescription:
        """This description, checked against the service's limits."""
        check_path(self.name)
        check_lock(self.lock_duration)
        check_size(self.max_size_in_megabytes, partitioned=self.enable_partitioning)
        check_ttl(self.default_message_time_to_live)
        check_window(self.duplicate_detection_history_time_window)
        check_delivery_count(self.max_delivery_count)
        check_authorization_rules(self.authorization_rules)
        check_metadata(self.user_metadata)
        check_idle(self.auto_delete_on_idle)
        check_message_size(self.max_message_size_in_kilobytes)
        check_targets(self.forward_to, self.forward_dead_lettered_messages_to)
        check_express(self.enable_express, self.requires_duplicate_detection)
        return replace(
            self,
            forward_to=self.forward_to or None,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to or None,
        )


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as its owner described it."""

    name: str
    default_message_time_to_live: timedelta = MAX_DURATION
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    support_ordering: bool = True
    auto_delete_on_idle: timedelta = MAX_DURATION
    enable_partitioning: bool = False
    enable_express: bool = False
    max_message_size_in_kilobytes: int = DEFAULT_MAX_MESSAGE_KILOBYTES
    availability_status: AvailabilityStatus = AvailabilityStatus.AVAILABLE

    def validated(self) -> TopicDescription:
        """This description, checked against the service's limits."""
        check_path(self.name)
        check_size(self.max_size_in_megabytes, partitioned=self.enable_partitioning)
        check_ttl(self.default_message_time_to_live)
        check_window(self.duplicate_detection_history_time_window)
        check_authorization_rules(self.authorization_rules)
        check_metadata(self.user_metadata)
        check_idle(self.auto_delete_on_idle)
        check_message_size(self.max_message_size_in_kilobytes)
        check_express(self.enable_express, self.requires_duplicate_detection)
        if self.status is EntityStatus.RECEIVE_DISABLED:
            raise ArgumentError("The status ReceiveDisabled does not apply to a topic.")
        return self


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription of a topic as its owner described it."""

    topic_name: str
    name: str
    lock_duration: timedelta = timedelta(minutes=1)
    requires_session: bool = False
    default_message_time_to_live: timedelta = MAX_DURATION
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle: timedelta = MAX_DURATION
    availability_status: AvailabilityStatus = AvailabilityStatus.AVAILABLE

    @property
    def path(self) -> str:
        """The address of the subscription, ``<topic>/Subscriptions/<name>``."""
        return subscription_path(self.topic_name, self.name)

    def validated(self) -> SubscriptionDescription:
        """This description, checked against the service's limits."""
        check_path(self.topic_name)
        check_name(self.name, "subscription")
        check_lock(self.lock_duration)
        check_ttl(self.default_message_time_to_live)
        check_delivery_count(self.max_delivery_count)
        check_metadata(self.user_metadata)
        check_idle(self.auto_delete_on_idle)
        check_targets(self.forward_to, self.forward_dead_lettered_messages_to)
        return replace(
            self,
            forward_to=self.forward_to or None,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to or None,
        )


EntityDescription: TypeAlias = QueueDescription | TopicDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True)
class RuntimeProperties:
    """The state of an entity at one moment: counts, sizes and times; 0 where none apply."""

    created_at_utc: datetime
    updated_at_utc: datetime
    accessed_at_utc: datetime
    size_in_bytes: int = 0
    total_message_count: int = 0
    active_message_count: int = 0
    dead_letter_message_count: int = 0
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    subscription_count: int = 0


_CANNOT_CHANGE = (
    ("requires_session", "RequiresSession"),
    ("requires_duplicate_detection", "RequiresDuplicateDetection"),
    ("enable_partitioning", "EnablePartitioning"),
)


def check_update(old: EntityDescription, new: EntityDescription) -> None:
    """Refuse an update that changes what is fixed at creation."""
    for attribute, shown in _CANNOT_CHANGE:
        if getattr(old, attribute, None) != getattr(new, attribute, None):
            raise ArgumentError(
                f"The value for the {shown} property of an existing entity cannot be changed."
            )


def check_forwarding(
    description: EntityDescription, find: Callable[[str], EntityDescription | None]
) -> None:
    """Refuse to forward to what does not exist; *find* gives the queue or topic of a path.

    A circle is no error, as in the service: a message that goes round ends at the hop limit.
    """
    if isinstance(description, TopicDescription):
        return
    for shown, target in (
        ("ForwardTo", description.forward_to),
        ("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to),
    ):
        if target and find(target) is None:
            raise ArgumentError(f"{shown}: the entity '{target}' does not exist.")
