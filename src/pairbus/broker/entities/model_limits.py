"""Names, paths and counts that the service accepts; others raise ArgumentError."""

from __future__ import annotations

import re

from pairbus.broker.entities.errors import ArgumentError, QuotaExceededError

MAX_PATH_LENGTH = 260
MAX_NAME_LENGTH = 50
MAX_SQL_LENGTH = 1024
MAX_AUTHORIZATION_RULES = 12
MAX_RULE_PROPERTIES = 128
MAX_ENTITIES = 10_000
MAX_SUBSCRIPTIONS = 2_000
MAX_RULES = 2_000

_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-/]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?", re.ASCII)
RULE_NAME = re.compile(r"[A-Za-z0-9_$](?:[A-Za-z0-9._\-$]*[A-Za-z0-9_$])?", re.ASCII)


def check_count(count: int, limit: int, what: str) -> None:
    """Raise QuotaExceededError if one more would exceed the limit."""
    if count >= limit:
        raise QuotaExceededError(f"The limit of {limit} {what} is reached.")


def entity_key(path: str) -> str:
    """The form in which paths are compared: case is ignored."""
    return path.strip("/").lower()


def subscription_path(topic_name: str, name: str) -> str:
    """The address of a subscription."""
    return f"{topic_name}/Subscriptions/{name}"


def check_path(path: str) -> None:
    """Refuse a queue or topic name that the service does not accept."""
    if not path:
        raise ArgumentError("An entity needs a name.")
    at_most(len(path), MAX_PATH_LENGTH, "The entity path", "characters")
    if not _PATH.fullmatch(path) or "//" in path:
        raise ArgumentError(
            f"'{path}' contains characters that are not allowed in an entity path: it may hold "
            "letters, digits, periods, hyphens, underscores and slashes, and starts and ends with "
            "a letter or digit."
        )
    if not {".", ".."}.isdisjoint(path.split("/")):  # clients remove these from a URL
        raise ArgumentError(f"'{path}': a segment cannot be '.' or '..'.")
    if "subscriptions" in path.lower().split("/")[1:]:
        raise ArgumentError(f"'{path}': the segment 'Subscriptions' is reserved.")


def check_name(name: str, kind: str, *, pattern: re.Pattern[str] = _NAME) -> None:
    """Refuse a subscription or rule name that the service does not accept."""
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
    """Refuse a value above *limit*."""
    if value > limit:
        raise ArgumentError(f"{what} exceeds the limit of {limit} {unit}: {value}.")
