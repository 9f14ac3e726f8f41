"""The properties of entities that depend on the tier of their namespace."""

from __future__ import annotations

from dataclasses import replace

from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import EntityDescription, SubscriptionDescription
from pairbus.broker.entities.model_table import TIER_MESSAGE_SIZE
from pairbus.broker.settings import Tier

STANDARD_KILOBYTES = 256
PREMIUM_KILOBYTES = 1024


def for_tier(
    description: EntityDescription, tier: Tier, current: EntityDescription | None = None
) -> EntityDescription:
    """A description with the defaults of a tier.

    Args:
        description: as the client gave it.
        tier: the namespace's tier.
        current: the description that this one is to replace; its values are accepted.

    Raises:
        ArgumentError: the tier refuses one of its properties.
    """
    if isinstance(description, SubscriptionDescription):
        return description
    size = description.max_message_size_in_kilobytes
    if type(current) is type(description) and size == current.max_message_size_in_kilobytes:
        return description
    if tier is Tier.STANDARD:
        if size not in (TIER_MESSAGE_SIZE, STANDARD_KILOBYTES):
            raise ArgumentError(
                f"MaxMessageSizeInKilobytes: {size} is for Premium namespaces only. A Standard "
                f"namespace accepts messages of up to {STANDARD_KILOBYTES} KB."
            )
        return replace(description, max_message_size_in_kilobytes=STANDARD_KILOBYTES)
    if description.enable_express:
        raise ArgumentError("Express entities are not supported in a Premium namespace.")
    if description.enable_partitioning:
        raise ArgumentError(
            "Partitioned entities are not supported in a Premium namespace: partitioning is a "
            "property of the namespace."
        )
    if size == TIER_MESSAGE_SIZE:
        return replace(description, max_message_size_in_kilobytes=PREMIUM_KILOBYTES)
    return description
