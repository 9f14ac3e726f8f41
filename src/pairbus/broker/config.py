"""Entities declared in a file, in the form of the official emulator's `Config.json`.

    {"UserConfig": {"Namespaces": [{"Name": "contoso",
        "Queues": [{"Name": "orders", "Properties": {"LockDuration": "PT1M"}}],
        "Topics": [{"Name": "events", "Subscriptions": [{"Name": "all", "Rules": []}]}]}]}}

Every mistake is found before anything is created, and named with its place in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pairbus.broker.entities.errors import BrokerError
from pairbus.broker.entities.model import (
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
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
)
from pairbus.broker.settings import BrokerStartError

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class DeclaredSubscription:
    """A subscription and its rules; None where the default rule is wanted."""

    description: SubscriptionDescription
    rules: tuple[RuleDescription, ...] | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The entities that a file declares for one namespace."""

    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicDescription, ...] = ()
    subscriptions: tuple[DeclaredSubscription, ...] = ()


class ConfigError(BrokerStartError):
    """The file cannot be used; the text says where and why."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")


def load(source: Mapping[str, Any] | str | Path, namespace: str) -> Declared:
    """Return what a file, or its content, declares for `namespace`.

    A file with a single namespace is meant for this one, whatever it is called there.

    Raises:
        ConfigError: The file cannot be read, or something in it is wrong.
    """
    place = "entities"
    content: Any = source
    if isinstance(source, str | Path):
        place = str(source)
        try:
            content = json.loads(Path(source).read_text(encoding="utf-8"))
        except OSError as exc:
            raise ConfigError(place, f"cannot be read: {exc.strerror}") from exc
        except ValueError as exc:
            raise ConfigError(place, f"is not JSON: {exc}") from exc
    user = _get(content, "UserConfig", Mapping, place, required=False) or content
    if not isinstance(user, Mapping):
        raise ConfigError(place, "must be an object")
    if "Namespaces" not in user and ("Queues" in user or "Topics" in user):
        return _namespace(user, place)
    namespaces = _get(user, "Namespaces", list, place) or []
    named = [n for n in namespaces if isinstance(n, Mapping) and _is(n.get("Name"), namespace)]
    chosen = named or (namespaces if len(namespaces) == 1 else [])
    if len(chosen) != 1:
        raise ConfigError(place, f"declares no namespace {namespace!r}")
    return _namespace(chosen[0], place)


def _namespace(content: Any, place: str) -> Declared:
    queues = [
        _entity(QueueDescription, (), item, where)
        for item, where in _items(content, "Queues", place)
    ]
    topics: list[TopicDescription] = []
    subscriptions: list[DeclaredSubscription] = []
    for item, where in _items(content, "Topics", place):
        topic = _entity(TopicDescription, (), item, where)
        topics.append(topic)
        for inner, inside in _items(item, "Subscriptions", where):
            description = _entity(SubscriptionDescription, (topic.name,), inner, inside)
            rules = tuple(_rule(rule, spot) for rule, spot in _items(inner, "Rules", inside))
            subscriptions.append(DeclaredSubscription(description, rules or None))
    return Declared(tuple(queues), tuple(topics), tuple(subscriptions))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a whole number")
    return value


def _status(value: Any) -> EntityStatus:
    try:
        return EntityStatus(_text(value))
    except ValueError:
        raise TypeError(f"one of {', '.join(EntityStatus)}") from None


_PROPERTIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "AutoDeleteOnIdle": ("auto_delete_on_idle", parse_duration),
    "DeadLetteringOnFilterEvaluationExceptions": (
        "dead_lettering_on_filter_evaluation_exceptions",
        _flag,
    ),
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", _flag),
    "DefaultMessageTimeToLive": ("default_message_time_to_live", parse_duration),
    "DuplicateDetectionHistoryTimeWindow": (
        "duplicate_detection_history_time_window",
        parse_duration,
    ),
    "EnableBatchedOperations": ("enable_batched_operations", _flag),
    "EnableExpress": ("enable_express", _flag),
    "EnablePartitioning": ("enable_partitioning", _flag),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", _text),
    "ForwardTo": ("forward_to", _text),
    "LockDuration": ("lock_duration", parse_duration),
    "MaxDeliveryCount": ("max_delivery_count", _number),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", _number),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", _number),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", _flag),
    "RequiresSession": ("requires_session", _flag),
    "Status": ("status", _status),
    "SupportOrdering": ("support_ordering", _flag),
    "UserMetadata": ("user_metadata", _text),
}


def _entity(make: Callable[..., D], before: tuple[str, ...], item: Any, where: str) -> D:
    name = _get(item, "Name", str, where)
    values: dict[str, Any] = {}
    for key, value in (_get(item, "Properties", Mapping, where, required=False) or {}).items():
        if key not in _PROPERTIES:
            raise ConfigError(f"{where}.Properties", f"{key} is no property of an entity")
        attribute, read = _PROPERTIES[key]
        try:
            values[attribute] = read(value)
        except TypeError as exc:
            raise ConfigError(f"{where}.Properties.{key}", f"must be {exc}") from None
        except (AttributeError, BrokerError) as exc:
            raise ConfigError(f"{where}.Properties.{key}", _said(exc)) from None
    try:
        description: Any = make(*before, name, **values)
        validated: D = description.validated()
    except TypeError:
        raise ConfigError(f"{where}.Properties", "has one that does not apply here") from None
    except BrokerError as exc:
        raise ConfigError(where, _said(exc)) from None
    return validated


_CORRELATION = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "Subject": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}


def _rule(item: Any, where: str) -> RuleDescription:
    name = _get(item, "Name", str, where)
    properties = _get(item, "Properties", Mapping, where, required=False) or {}
    inside = f"{where}.Properties"
    kind = str(properties.get("FilterType", "")).lower().removesuffix("filter")
    action = None
    wanted = _get(properties, "Action", Mapping, inside, required=False)
    if wanted:
        action = SqlAction(_get(wanted, "SqlExpression", str, f"{inside}.Action"))
    chosen: RuleFilter
    if kind == "correlation" or (not kind and "CorrelationFilter" in properties):
        chosen = _correlation(
            _get(properties, "CorrelationFilter", Mapping, inside), f"{inside}.CorrelationFilter"
        )
    elif kind == "sql" or (not kind and "SqlFilter" in properties):
        sql = _get(properties, "SqlFilter", Mapping, inside)
        chosen = SqlFilter(_get(sql, "SqlExpression", str, f"{inside}.SqlFilter"))
    elif kind in {"", "true"}:
        chosen = TrueFilter()
    elif kind == "false":
        chosen = FalseFilter()
    else:
        raise ConfigError(f"{inside}.FilterType", "must be Correlation, Sql, True or False")
    try:
        return RuleDescription(name, chosen, action).validated()
    except BrokerError as exc:
        raise ConfigError(where, _said(exc)) from None


def _correlation(content: Mapping[str, Any], where: str) -> CorrelationFilter:
    values: dict[str, Any] = {}
    pairs: list[tuple[str, TypedValue]] = []
    for key, value in content.items():
        if key == "Properties":
            pairs = [(str(k), _typed(v)) for k, v in (value or {}).items()]
        elif key in _CORRELATION:
            values[_CORRELATION[key]] = value
        else:
            raise ConfigError(where, f"{key} is no property of a correlation filter")
    return CorrelationFilter(**values, properties=tuple(pairs))


def _typed(value: Any) -> TypedValue:
    if isinstance(value, bool):
        return TypedValue("boolean", "true" if value else "false")
    if isinstance(value, int):
        return TypedValue("long", str(value))
    if isinstance(value, float):
        return TypedValue("double", repr(value))
    return TypedValue("string", str(value))


def _items(content: Any, key: str, place: str) -> list[tuple[Any, str]]:
    found = _get(content, key, list, place, required=False) or []
    return [(item, f"{place}: {key}[{number}]") for number, item in enumerate(found)]


def _get(content: Any, key: str, kind: type, place: str, *, required: bool = True) -> Any:
    if not isinstance(content, Mapping):
        raise ConfigError(place, "must be an object")
    value = content.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, kind):
        shown = "a text" if kind is str else "a list" if kind is list else "an object"
        raise ConfigError(f"{place}.{key}", f"must be {shown}")
    return value


def _is(value: Any, name: str) -> bool:
    return isinstance(value, str) and value.lower() == name.lower()


def _said(exc: Exception) -> str:
    return str(exc).rstrip(".")
