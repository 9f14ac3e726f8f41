"""The settings of an entity as plain integers, for code that runs for every message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pairbus.broker.entities.messages import NEVER
from pairbus.broker.entities.model import (
    MAX_DURATION,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)


def milliseconds(value: timedelta) -> int:
    """A duration in milliseconds; the service's maximum is NEVER."""
    return NEVER if value >= MAX_DURATION else round(value / timedelta(milliseconds=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The properties of an entity that the broker acts on: milliseconds, bytes."""

    can_send: bool = True
    can_receive: bool = True
    lock_duration: int = 60_000
    max_delivery_count: int = 10
    default_ttl: int = NEVER
    dead_letter_on_expiration: bool = False
    dead_letter_on_filter_error: bool = True
    requires_session: bool = False
    duplicate_window: int = 0
    partitioned: bool = False
    max_size: int = NEVER
    max_message_size: int = NEVER
    idle: int = NEVER
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None


def settings_of(description: EntityDescription) -> Settings:
    """The settings of a description."""
    common: dict[str, Any] = {
        "can_send": description.status.can_send,
        "can_receive": description.status.can_receive,
        "default_ttl": milliseconds(description.default_message_time_to_live),
        "idle": milliseconds(description.auto_delete_on_idle),
    }
    if isinstance(description, QueueDescription | TopicDescription):
        common |= {
            "max_size": description.max_size_in_megabytes * 1024 * 1024,
            "max_message_size": description.max_message_size_in_kilobytes * 1024,
            "partitioned": description.enable_partitioning,
            "duplicate_window": milliseconds(description.duplicate_detection_history_time_window)
            if description.requires_duplicate_detection
            else 0,
        }
    if isinstance(description, QueueDescription | SubscriptionDescription):
        common |= {
            "lock_duration": milliseconds(description.lock_duration),
            "max_delivery_count": description.max_delivery_count,
            "dead_letter_on_expiration": description.dead_lettering_on_message_expiration,
            "requires_session": description.requires_session,
            "forward_to": description.forward_to,
            "forward_dead_letters_to": description.forward_dead_lettered_messages_to,
        }
    if isinstance(description, SubscriptionDescription):
        common["dead_letter_on_filter_error"] = (
            description.dead_lettering_on_filter_evaluation_exceptions
        )
    return Settings(**common)
