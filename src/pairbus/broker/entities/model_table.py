"""The table of entity properties.

A row is a :class:`Property`. A description class of :mod:`~pairbus.broker.entities.model` takes
the rows that apply to it as its fields, in the order in which the service writes them as XML. The
XML reader and writer, the validation, the reader of ``Config.json`` and the coverage page are all
derived from these rows, so a new property is added here and in the classes that have it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pairbus.broker.entities.model_limits import check_path
from pairbus.broker.entities.model_properties import (
    AUTHORIZATION_RULES,
    AVAILABILITY,
    BOOLEAN,
    DURATION,
    INTEGER,
    PATH,
    STATUS,
    TEXT,
    AvailabilityStatus,
    EntityStatus,
    Property,
    ServerElement,
)
from pairbus.broker.entities.model_rules import AuthorizationRule, check_authorization_rules
from pairbus.broker.entities.model_values import MAX_DURATION


def _between(low: timedelta, high: timedelta) -> Callable[[timedelta], bool]:
    return lambda value: low <= value <= high


def _is_path(value: str | None) -> bool:
    if value:
        check_path(value)
    return True


def _are_rules(value: tuple[AuthorizationRule, ...]) -> bool:
    check_authorization_rules(value)
    return True


MAX_DELIVERY_COUNT = 2**31 - 1
MAX_USER_METADATA = 1024
TIER_MESSAGE_SIZE = 0
"""Stands for the largest message of the namespace's tier."""
SIZES = frozenset({1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920})
PARTITIONED_SIZES = SIZES | {16384, 32768, 49152, 65536}

LOCK_DURATION = Property(
    type=DURATION,
    default=timedelta(minutes=1),
    limit="more than zero, at most 5 minutes",
    accepts=_between(timedelta.resolution, timedelta(minutes=5)),
)
DEFAULT_MESSAGE_TIME_TO_LIVE = Property(
    type=DURATION,
    default=MAX_DURATION,
    limit="at least 1 second",
    accepts=lambda value: value >= timedelta(seconds=1),
)
AUTO_DELETE_ON_IDLE = Property(
    type=DURATION,
    default=MAX_DURATION,
    limit="at least 5 minutes",
    accepts=lambda value: value >= timedelta(minutes=5),
)
DUPLICATE_WINDOW = Property(
    type=DURATION,
    default=timedelta(minutes=10),
    limit="between 20 seconds and 7 days",
    accepts=_between(timedelta(seconds=20), timedelta(days=7)),
)
MAX_SIZE_IN_MEGABYTES = Property(
    type=INTEGER,
    default=1024,
    limit="a size that the service offers: 1024, 2048, 3072, 4096 or 5120",
    accepts=lambda size: size in PARTITIONED_SIZES,
)
MAX_DELIVERIES = Property(
    type=INTEGER,
    default=10,
    limit=f"between 1 and {MAX_DELIVERY_COUNT}",
    accepts=lambda count: 1 <= count <= MAX_DELIVERY_COUNT,
)
MAX_MESSAGE_SIZE_IN_KILOBYTES = Property(
    type=INTEGER,
    default=TIER_MESSAGE_SIZE,
    limit="256 in a Standard namespace, between 1024 and 102400 in a Premium one",
    accepts=lambda size: size in (TIER_MESSAGE_SIZE, 256) or 1024 <= size <= 102400,
    is_kept=True,
    since="2021-05",
)
REQUIRES_SESSION = Property(type=BOOLEAN, default=False, is_fixed=True, is_kept=True)
REQUIRES_DUPLICATE_DETECTION = Property(type=BOOLEAN, default=False, is_fixed=True, is_kept=True)
ENABLE_PARTITIONING = Property(
    type=BOOLEAN,
    default=False,
    is_fixed=True,
    is_kept=True,
    note="stored; there are no partitions",
)
ENABLE_EXPRESS = Property(
    type=BOOLEAN, default=False, note="stored; every message is written to the store"
)
ENABLE_BATCHED_OPERATIONS = Property(
    type=BOOLEAN, default=True, note="stored; writes are always grouped"
)
SUPPORT_ORDERING = Property(type=BOOLEAN, default=True, note="stored; order is always kept")
FILTERING_BEFORE_PUBLISHING = Property(type=BOOLEAN, default=False, note="stored, not acted on")
DEAD_LETTERING_ON_EXPIRATION = Property(type=BOOLEAN, default=False)
DEAD_LETTERING_ON_FILTER_ERROR = Property(type=BOOLEAN, default=True)
STATUS_OF_ENTITY = Property(type=STATUS, default=EntityStatus.ACTIVE)
STATUS_OF_TOPIC = Property(
    type=STATUS,
    default=EntityStatus.ACTIVE,
    limit="Active, Disabled or SendDisabled for a topic",
    accepts=lambda status: status is not EntityStatus.RECEIVE_DISABLED,
)
FORWARD_TO: Property[str | None] = Property(
    type=PATH, default=None, limit="a path of at most 260 characters", accepts=_is_path
)
USER_METADATA = Property(
    type=TEXT,
    default=None,
    limit=f"at most {MAX_USER_METADATA} characters long",
    accepts=lambda text: len(text or "") <= MAX_USER_METADATA,
)
AUTHORIZATION = Property(
    type=AUTHORIZATION_RULES,
    default=(),
    limit="at most 12 rules with distinct names",
    accepts=_are_rules,
    in_config=False,
)
AVAILABILITY_STATUS = Property(
    type=AVAILABILITY,
    default=AvailabilityStatus.AVAILABLE,
    xml="EntityAvailabilityStatus",
    is_read_only=True,
    in_config=False,
)

SIZE_IN_BYTES = ServerElement("SizeInBytes", ("size_in_bytes",))
MESSAGE_COUNT = ServerElement("MessageCount", ("total_message_count",))
SUBSCRIPTION_COUNT = ServerElement("SubscriptionCount", ("subscription_count",))
TIMES = (
    ServerElement("CreatedAt", ("created_at_utc",)),
    ServerElement("UpdatedAt", ("updated_at_utc",)),
    ServerElement("AccessedAt", ("accessed_at_utc",)),
)
COUNT_DETAILS = ServerElement(
    "CountDetails",
    (
        "active_message_count",
        "dead_letter_message_count",
        "scheduled_message_count",
        "transfer_message_count",
        "transfer_dead_letter_message_count",
    ),
)
IS_ANONYMOUS = ServerElement("IsAnonymousAccessible", constant="false")
QUEUE_ORDERING = ServerElement("SupportOrdering", constant="true")
SUBSCRIPTION_PARTITIONING = ServerElement("EnableSubscriptionPartitioning", constant="false")
