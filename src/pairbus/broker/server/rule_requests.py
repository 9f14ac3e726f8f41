"""Management requests for rules of subscriptions, which clients of other languages send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pairbus.amqp.types import Described, Int, Symbol, Timestamp, ULong
from pairbus.broker.entities.credits import MANAGEMENT
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
from pairbus.broker.filters.compiled import check_rule

if TYPE_CHECKING:
    from pairbus.broker.server.management import ManagementNode
    from pairbus.broker.server.requests import Request


#: Descriptors of rules, filters and actions in the service's AMQP protocol.
_RULE = ULong(0x137_0000_0004)
_EMPTY_ACTION = ULong(0x137_0000_0005)
_SQL_ACTION = ULong(0x137_0000_0006)
_SQL_FILTER = ULong(0x13_7000_0006)
_TRUE_FILTER = ULong(0x13_7000_0007)
_FALSE_FILTER = ULong(0x13_7000_0008)
_CORRELATION_FILTER = ULong(0x13_7000_0009)
_COMPATIBILITY = 20


def add_rule(node: ManagementNode, request: Request, body: dict[Any, Any]) -> tuple[int, Any]:
    """Add a rule to a subscription."""
    node.end.throttle.charge(MANAGEMENT)
    topic, subscription = _subscription(node.entity)
    described = body["rule-description"]
    action = described.get("sql-rule-action") or {}
    expression = action.get("expression")
    rule = RuleDescription(
        str(body["rule-name"]),
        _filter(described),
        SqlAction(str(expression)) if expression else None,
    )
    node.namespace.admin.create_rule(topic, subscription, check_rule(rule))
    return 200, {}


def remove_rule(node: ManagementNode, request: Request, body: dict[Any, Any]) -> tuple[int, Any]:
    """Remove a rule of a subscription."""
    node.end.throttle.charge(MANAGEMENT)
    node.namespace.admin.delete_rule(*_subscription(node.entity), str(body["rule-name"]))
    return 200, {}


def enumerate_rules(
    node: ManagementNode, request: Request, body: dict[Any, Any]
) -> tuple[int, Any]:
    """List the rules of a subscription, as described lists of the protocol."""
    node.end.throttle.charge(MANAGEMENT)
    skip, top = int(body.get("skip", 0)), int(body.get("top", 100))
    found = node.namespace.admin.list_rules(*_subscription(node.entity))[skip : skip + top]
    rules = [{"rule-description": _description(rule)} for rule in found]
    return (200, {"rules": rules}) if rules else (204, None)


def _description(rule: RuleDescription) -> Described:
    action = rule.action
    created = rule.created_at_utc
    return Described(
        _RULE,
        [
            _described_filter(rule.filter),
            Described(_EMPTY_ACTION, [])
            if action is None
            else Described(_SQL_ACTION, [action.sql_expression, Int(_COMPATIBILITY)]),
            rule.name,
            None if created is None else Timestamp(round(created.timestamp() * 1000)),
        ],
    )


def _described_filter(wanted: RuleFilter) -> Described:
    match wanted:
        case SqlFilter():
            return Described(_SQL_FILTER, [wanted.sql_expression, Int(_COMPATIBILITY)])
        case TrueFilter():
            return Described(_TRUE_FILTER, [])
        case FalseFilter():
            return Described(_FALSE_FILTER, [])
        case CorrelationFilter():
            properties = {key: _amqp_value(value.value) for key, value in wanted.properties}
            fields = [getattr(wanted, name) for name in CORRELATION_FIELDS]
            return Described(_CORRELATION_FILTER, [*fields, properties])


def _amqp_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return Timestamp(round(value.timestamp() * 1000))
    if isinstance(value, timedelta):
        return Described(Symbol("com.microsoft:timespan"), value // timedelta(microseconds=1) * 10)
    return value


def _subscription(entity: str) -> tuple[str, str]:
    topic, separator, name = entity.lower().rpartition("/subscriptions/")
    if not separator or "/" in name:
        raise ArgumentError(f"'{entity}' is not a subscription.")
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
