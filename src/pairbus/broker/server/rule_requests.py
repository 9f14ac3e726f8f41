"""Rules of subscriptions by management request, as clients other than Python's send them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pairbus.amqp.types import Timestamp
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from pairbus.broker.entities.model_rules import CORRELATION_FIELDS

if TYPE_CHECKING:
    from pairbus.broker.namespace.namespace import Namespace


def add_rule(namespace: Namespace, entity: str, body: dict[Any, Any]) -> None:
    """Carry out `add-rule`."""
    topic, subscription = _subscription(entity)
    described = body["rule-description"]
    action = described.get("sql-rule-action") or {}
    expression = action.get("expression")
    rule = RuleDescription(
        str(body["rule-name"]),
        _filter(described),
        SqlAction(str(expression)) if expression else None,
    )
    namespace.admin.create_rule(topic, subscription, rule)


def remove_rule(namespace: Namespace, entity: str, body: dict[Any, Any]) -> None:
    """Carry out `remove-rule`."""
    topic, subscription = _subscription(entity)
    namespace.admin.delete_rule(topic, subscription, str(body["rule-name"]))


def _subscription(entity: str) -> tuple[str, str]:
    topic, separator, name = entity.lower().rpartition("/subscriptions/")
    if not separator or "/" in name:
        raise ArgumentError(f"'{entity}' is no subscription.")
    return topic, name


def _filter(described: dict[Any, Any]) -> RuleFilter:
    if "correlation-filter" in described:
        wanted = described["correlation-filter"]
        values = {
            field: str(wanted[name])
            for field in CORRELATION_FIELDS
            if wanted.get(name := field.replace("_", "-")) is not None
        }
        pairs = tuple(
            (str(key), _typed(value)) for key, value in (wanted.get("properties") or {}).items()
        )
        return CorrelationFilter(**values, properties=pairs)
    if "sql-filter" in described:
        expression = str(described["sql-filter"]["expression"])
        if expression.replace(" ", "") == "1=1":
            return TrueFilter()
        return FalseFilter() if expression.replace(" ", "") == "1=0" else SqlFilter(expression)
    raise ArgumentError("A rule needs a filter.")


def _typed(value: Any) -> TypedValue:
    if isinstance(value, Timestamp):
        return TypedValue.of(datetime.fromtimestamp(value / 1000, UTC))
    return TypedValue.of(value)
