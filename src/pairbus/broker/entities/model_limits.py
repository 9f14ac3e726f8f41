"""The limits of the service, one check each; a value outside raises ArgumentError."""

from __future__ import annotations

import re
from datetime import timedelta

from pairbus.broker.entities.errors import ArgumentError, QuotaExceededError

MAX_PATH_LENGTH = 260
MAX_NAME_LENGTH = 50
MAX_USER_METADATA = 1024
MAX_SQL_LENGTH = 1024
MAX_AUTHORIZATION_RULES = 12
MAX_RULE_PROPERTIES = 128
MAX_ENTITIES = 10_000
MAX_SUBSCRIPTIONS = 2_000
MAX_RULES = 2_000
DEFAULT_MAX_MESSAGE_KILOBYTES = 1024
MAX_DELIVERY_COUNT = 2**31 - 1

_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-/]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?", re.ASCII)
RULE_NAME = re.compile(r"[A-Za-z0-9_$](?:[A-Za-z0-9._\-$]*[A-Za-z0-9_$])?", re.ASCII)
_SIZES = frozenset({1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920})
_PARTITIONED_SIZES = _SIZES | {16384, 32768, 49152, 65536}


def check_count(count: int, limit: int, what: str) -> None:
    """Refuse one more where the service would: QuotaExceededError."""
    if count >= limit:
        raise QuotaExceededError(f"The limit of {limit} {what} is reached.")


def entity_key(path: str) -> str:
    """The form under which a path is compared: paths do not differ by case."""
    return path.strip("/").lower()


def subscription_path(topic_name: str, name: str) -> str:
    """The address of a subscription."""
    return f"{topic_name}/Subscriptions/{name}"


def check_path(path: str) -> None:
    """Refuse a queue or topic name that the service would not take."""
    if not path:
        raise ArgumentError("An entity needs a name.")
    at_most(len(path), MAX_PATH_LENGTH, "The entity path", "characters")
    if not _PATH.fullmatch(path) or "//" in path:
        raise ArgumentError(
            f"'{path}' contains characters that are not allowed in an entity path: it may hold "
            "letters, digits, periods, hyphens, underscores and slashes, and starts and ends with "
            "a letter or digit."
        )
    if "subscriptions" in path.lower().split("/")[1:]:
        raise ArgumentError(f"'{path}': the segment 'Subscriptions' is reserved.")


def check_name(name: str, kind: str, *, pattern: re.Pattern[str] = _NAME) -> None:
    """Refuse a subscription or rule name that the service would not take."""
    if not name:
        raise ArgumentError(f"A {kind} needs a name.")
    at_most(len(name), MAX_NAME_LENGTH, f"The {kind} name", "characters")
    if not pattern.fullmatch(name):
        raise ArgumentError(
            f"'{name}' contains characters that are not allowed in a {kind} name: it may hold "
            "letters, digits, periods, hyphens and underscores, and starts and ends with a letter "
            "or digit."
        )


def at_most(value: int, limit: int, what: str, unit: str) -> None:
    """Refuse what is more than *limit*."""
    if value > limit:
        raise ArgumentError(f"{what} exceeds the limit of {limit} {unit}: {value}.")


def check_lock(value: timedelta) -> None:
    """Refuse a lock duration beyond 5 minutes."""
    if not timedelta() < value <= timedelta(minutes=5):
        raise ArgumentError("LockDuration must be more than zero and at most 5 minutes.")


def check_ttl(value: timedelta) -> None:
    """Refuse a default time to live below 1 second."""
    if value < timedelta(seconds=1):
        raise ArgumentError("DefaultMessageTimeToLive must be at least 1 second.")


def check_window(value: timedelta) -> None:
    """Refuse a duplicate detection window outside 20 seconds to 7 days."""
    if not timedelta(seconds=20) <= value <= timedelta(days=7):
        raise ArgumentError(
            "DuplicateDetectionHistoryTimeWindow must be between 20 seconds and 7 days."
        )


def check_idle(value: timedelta) -> None:
    """Refuse to delete what was idle for less than 5 minutes."""
    if value < timedelta(minutes=5):
        raise ArgumentError("AutoDeleteOnIdle must be at least 5 minutes.")


def check_delivery_count(value: int) -> None:
    """Refuse a delivery count below 1."""
    if not 1 <= value <= MAX_DELIVERY_COUNT:
        raise ArgumentError(f"MaxDeliveryCount must be between 1 and {MAX_DELIVERY_COUNT}.")


def check_size(value: int, *, partitioned: bool) -> None:
    """Refuse an entity size that the service does not offer."""
    if value not in (_PARTITIONED_SIZES if partitioned else _SIZES):
        raise ArgumentError(
            f"MaxSizeInMegabytes {value} is not a size that the service offers: 1024, 2048, 3072, "
            "4096 or 5120."
        )


def check_message_size(value: int) -> None:
    """Refuse a message size that no tier of the service offers."""
    # 256 is what the Standard tier reports, so it comes back in updates; the rest is Premium.
    if value != 256 and not 1024 <= value <= 102400:
        raise ArgumentError("MaxMessageSizeInKilobytes must be between 1024 and 102400.")


def check_metadata(value: str | None) -> None:
    """Refuse user metadata beyond its limit."""
    at_most(len(value or ""), MAX_USER_METADATA, "UserMetadata", "characters")


def check_targets(*targets: str | None) -> None:
    """Refuse a target of forwarding that is no path."""
    for target in targets:
        if target:
            check_path(target)


def check_express(is_express: bool, detects_duplicates: bool) -> None:
    """Refuse what the service refuses to combine."""
    if is_express and detects_duplicates:
        raise ArgumentError(
            "Both DelayedPersistence property and RequiresDuplicateDetection property cannot be "
            "enabled together."
        )
