"""Descriptions of queues, topics and subscriptions.

The dataclasses are frozen and their fields are named as in the properties objects of
``azure.servicebus.management``. Every field but the name is a row of the table in
:mod:`~pairbus.broker.entities.model_table`, and the fields stand in the order in which the
service writes them as XML.
"""

# ruff: noqa: RUF009  (the calls make dataclass fields)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self, TypeAlias

from pairbus.broker.entities import model_table as table
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model_limits import (
    check_name,
    check_path,
    entity_key,
    subscription_path,
)
from pairbus.broker.entities.model_properties import AvailabilityStatus, EntityStatus, columns
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
)
from pairbus.broker.entities.model_values import MAX_DURATION, TypedValue

__all__ = [
    "DEFAULT_RULE",
    "MAX_DURATION",
    "AccessRight",
    "AuthorizationRule",
    "AvailabilityStatus",
    "CorrelationFilter",
    "EntityDescription",
    "EntityStatus",
    "FalseFilter",
    "QueueDescription",
    "RuleDescription",
    "RuleFilter",
    "RuntimeProperties",
    "SqlAction",
    "SqlFilter",
    "SubscriptionDescription",
    "TopicDescription",
    "TrueFilter",
    "TypedValue",
    "check_forwarding",
    "check_update",
    "entity_key",
    "subscription_path",
]


@dataclass(frozen=True, slots=True)
class _Description:
    """The base of the three kinds of description."""

    def check_names(self) -> None:
        """Raise ArgumentError for a name that the service does not accept."""
        raise NotImplementedError

    def validated(self) -> Self:
        """This description, checked against the limits of the service."""
        self.check_names()
        values = {}
        for column in columns(type(self)).values():
            values[column.field] = value = getattr(self, column.field)
            column.property.check(column.xml, value)
        if values.get("enable_express") and values["requires_duplicate_detection"]:
            raise ArgumentError(
                "Both DelayedPersistence property and RequiresDuplicateDetection property cannot "
                "be enabled together."
            )
        size = values.get("max_size_in_megabytes", 1024)
        if size not in table.SIZES and not values["enable_partitioning"]:
            raise ArgumentError(f"MaxSizeInMegabytes: {size} is for partitioned entities only.")
        return replace(self, **{name: None for name, value in values.items() if value == ""})


@dataclass(frozen=True, slots=True)
class _TopDescription(_Description):
    """The base of queues and topics."""

    name: str

    @property
    def path(self) -> str:
        """The address: the name."""
        return self.name

    def check_names(self) -> None:
        """Raise ArgumentError for a name that the service does not accept."""
        check_path(self.name)


@dataclass(frozen=True, slots=True)
class QueueDescription(_TopDescription):
    """The properties of a queue."""

    lock_duration: timedelta = table.LOCK_DURATION.field()
    max_size_in_megabytes: int = table.MAX_SIZE_IN_MEGABYTES.field()
    requires_duplicate_detection: bool = table.REQUIRES_DUPLICATE_DETECTION.field()
    requires_session: bool = table.REQUIRES_SESSION.field()
    default_message_time_to_live: timedelta = table.DEFAULT_MESSAGE_TIME_TO_LIVE.field()
    dead_lettering_on_message_expiration: bool = table.DEAD_LETTERING_ON_EXPIRATION.field()
    duplicate_detection_history_time_window: timedelta = table.DUPLICATE_WINDOW.field()
    max_delivery_count: int = table.MAX_DELIVERIES.field()
    enable_batched_operations: bool = table.ENABLE_BATCHED_OPERATIONS.field(
        table.SIZE_IN_BYTES, table.MESSAGE_COUNT, table.IS_ANONYMOUS
    )
    authorization_rules: tuple[AuthorizationRule, ...] = table.AUTHORIZATION.field()
    status: EntityStatus = table.STATUS_OF_ENTITY.field()
    forward_to: str | None = table.FORWARD_TO.field()
    user_metadata: str | None = table.USER_METADATA.field(
        *table.TIMES, table.QUEUE_ORDERING, table.COUNT_DETAILS
    )
    auto_delete_on_idle: timedelta = table.AUTO_DELETE_ON_IDLE.field()
    enable_partitioning: bool = table.ENABLE_PARTITIONING.field()
    availability_status: AvailabilityStatus = table.AVAILABILITY_STATUS.field()
    enable_express: bool = table.ENABLE_EXPRESS.field()
    forward_dead_lettered_messages_to: str | None = table.FORWARD_TO.field()
    max_message_size_in_kilobytes: int = table.MAX_MESSAGE_SIZE_IN_KILOBYTES.field()


@dataclass(frozen=True, slots=True)
class TopicDescription(_TopDescription):
    """The properties of a topic."""

    default_message_time_to_live: timedelta = table.DEFAULT_MESSAGE_TIME_TO_LIVE.field()
    max_size_in_megabytes: int = table.MAX_SIZE_IN_MEGABYTES.field()
    requires_duplicate_detection: bool = table.REQUIRES_DUPLICATE_DETECTION.field()
    duplicate_detection_history_time_window: timedelta = table.DUPLICATE_WINDOW.field()
    enable_batched_operations: bool = table.ENABLE_BATCHED_OPERATIONS.field(table.SIZE_IN_BYTES)
    filtering_messages_before_publishing: bool = table.FILTERING_BEFORE_PUBLISHING.field(
        table.IS_ANONYMOUS
    )
    authorization_rules: tuple[AuthorizationRule, ...] = table.AUTHORIZATION.field()
    status: EntityStatus = table.STATUS_OF_TOPIC.field()
    user_metadata: str | None = table.USER_METADATA.field(*table.TIMES)
    support_ordering: bool = table.SUPPORT_ORDERING.field(
        table.COUNT_DETAILS, table.SUBSCRIPTION_COUNT
    )
    auto_delete_on_idle: timedelta = table.AUTO_DELETE_ON_IDLE.field()
    enable_partitioning: bool = table.ENABLE_PARTITIONING.field()
    availability_status: AvailabilityStatus = table.AVAILABILITY_STATUS.field(
        table.SUBSCRIPTION_PARTITIONING
    )
    enable_express: bool = table.ENABLE_EXPRESS.field()
    max_message_size_in_kilobytes: int = table.MAX_MESSAGE_SIZE_IN_KILOBYTES.field()


@dataclass(frozen=True, slots=True)
class SubscriptionDescription(_Description):
    """The properties of a subscription of a topic."""

    topic_name: str
    name: str
    lock_duration: timedelta = table.LOCK_DURATION.field()
    requires_session: bool = table.REQUIRES_SESSION.field()
    default_message_time_to_live: timedelta = table.DEFAULT_MESSAGE_TIME_TO_LIVE.field()
    dead_lettering_on_message_expiration: bool = table.DEAD_LETTERING_ON_EXPIRATION.field()
    dead_lettering_on_filter_evaluation_exceptions: bool = (
        table.DEAD_LETTERING_ON_FILTER_ERROR.field(table.MESSAGE_COUNT)
    )
    max_delivery_count: int = table.MAX_DELIVERIES.field()
    enable_batched_operations: bool = table.ENABLE_BATCHED_OPERATIONS.field()
    status: EntityStatus = table.STATUS_OF_ENTITY.field()
    forward_to: str | None = table.FORWARD_TO.field(*table.TIMES)
    user_metadata: str | None = table.USER_METADATA.field(table.COUNT_DETAILS)
    forward_dead_lettered_messages_to: str | None = table.FORWARD_TO.field()
    auto_delete_on_idle: timedelta = table.AUTO_DELETE_ON_IDLE.field()
    availability_status: AvailabilityStatus = table.AVAILABILITY_STATUS.field()

    @property
    def path(self) -> str:
        """The address of the subscription, ``<topic>/Subscriptions/<name>``."""
        return subscription_path(self.topic_name, self.name)

    def check_names(self) -> None:
        """Raise ArgumentError for a name that the service does not accept."""
        check_path(self.topic_name)
        check_name(self.name, "subscription")


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


def check_update(old: EntityDescription, new: EntityDescription) -> None:
    """Refuse an update that changes a property which is fixed at creation."""
    for column in columns(type(old)).values():
        if column.property.is_fixed and getattr(old, column.field) != getattr(new, column.field):
            raise ArgumentError(
                f"The value for the {column.xml} property of an existing entity cannot be changed."
            )


def check_forwarding(description: EntityDescription, find: Callable[[str], object | None]) -> None:
    """Refuse to forward to an entity that does not exist; *find* looks up a path.

    A circle is accepted, as in the service: its messages end at the hop limit.
    """
    for column in columns(type(description)).values():
        if column.property is not table.FORWARD_TO:
            continue
        target = getattr(description, column.field)
        if target and find(target) is None:
            raise ArgumentError(f"{column.xml}: the entity '{target}' does not exist.")
