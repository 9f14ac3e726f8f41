"""Writes descriptions as XML, by the table of entity properties and in the service's order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pairbus.broker.admin.atom import (
    COUNTS,
    INSTANCE,
    SCHEMA,
    SERVICE_BUS,
    leaf,
    quote,
    tag,
    timestamp,
)
from pairbus.broker.entities.model import (
    AuthorizationRule,
    CorrelationFilter,
    EntityDescription,
    FalseFilter,
    RuleDescription,
    RuleFilter,
    RuntimeProperties,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from pairbus.broker.entities.model_properties import (
    AUTHORIZATION_RULES,
    BOOLEAN,
    PATH,
    Column,
    ServerElement,
    camel_case,
    columns,
)
from pairbus.broker.entities.model_rules import CORRELATION_FIELDS
from pairbus.broker.entities.model_values import Pairs

_ROOT = f' xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}"'

Address = Callable[[str], str]
"""Makes the address of an entity from its path, in the form that the client uses."""


def write_description(
    description: EntityDescription, runtime: RuntimeProperties, address: Address, api_version: str
) -> str:
    """A queue, topic or subscription as XML."""
    parts = []
    for column in columns(type(description)).values():
        if column.property.since <= api_version:
            parts.append(_property(column, getattr(description, column.field), address))
        parts += [_server_element(element, runtime) for element in column.followed_by]
    return tag(type(description).__name__, "".join(parts), _ROOT)


def _property(column: Column, value: Any, address: Address) -> str:
    if value is None:
        return ""
    if column.property.type is AUTHORIZATION_RULES:
        return tag(column.xml, "".join(_authorization_rule(rule) for rule in value))
    text = address(value) if column.property.type is PATH else column.property.type.format(value)
    return leaf(column.xml, text)


def _server_element(element: ServerElement, runtime: RuntimeProperties) -> str:
    if element.constant:
        return leaf(element.xml, element.constant)
    values = [getattr(runtime, field) for field in element.fields]
    if len(values) == 1:
        [value] = values
        return leaf(element.xml, timestamp(value) if isinstance(value, datetime) else str(value))
    counts = [
        leaf(f"d2p1:{camel_case(field)}", str(value))
        for field, value in zip(element.fields, values, strict=True)
    ]
    return tag(element.xml, "".join(counts), f' xmlns:d2p1="{COUNTS}"')


def _authorization_rule(rule: AuthorizationRule) -> str:
    rights = "".join(leaf("AccessRights", right.value) for right in rule.rights)
    return tag(
        "AuthorizationRule",
        leaf("ClaimType", rule.claim_type)
        + leaf("ClaimValue", rule.claim_value)
        + tag("Rights", rights)
        + (leaf("CreatedTime", timestamp(rule.created_at_utc)) if rule.created_at_utc else "")
        + (leaf("ModifiedTime", timestamp(rule.modified_at_utc)) if rule.modified_at_utc else "")
        + leaf("KeyName", rule.key_name)
        + leaf("PrimaryKey", rule.primary_key)
        + leaf("SecondaryKey", rule.secondary_key),
        f' i:type="{quote(rule.type)}"',
    )


def write_rule(rule: RuleDescription) -> str:
    """A rule as XML."""
    created = rule.created_at_utc
    return tag(
        "RuleDescription",
        _filter(rule.filter)
        + _action(rule.action)
        + (leaf("CreatedAt", timestamp(created)) if created else "")
        + leaf("Name", rule.name),
        _ROOT,
    )


def _filter(description: RuleFilter) -> str:
    match description:
        case CorrelationFilter():
            content = "".join(
                _optional(camel_case(name), getattr(description, name))
                for name in CORRELATION_FIELDS
            ) + _pairs("Properties", description.properties)
        case SqlFilter():
            content = _sql(description)
        case TrueFilter() | FalseFilter():
            content = (
                leaf("SqlExpression", description.sql_expression)
                + leaf("CompatibilityLevel", "20")
                + _preprocess(description.requires_preprocessing)
            )
    return tag("Filter", content, f' i:type="{type(description).__name__}"')


def _action(action: SqlAction | None) -> str:
    if action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    return tag("Action", _sql(action), ' i:type="SqlRuleAction"')


def _sql(part: SqlFilter | SqlAction) -> str:
    return (
        leaf("SqlExpression", part.sql_expression)
        + _optional("CompatibilityLevel", part.compatibility_level)
        + _pairs("Parameters", part.parameters)
        + _preprocess(part.requires_preprocessing)
    )


def _preprocess(value: bool | None) -> str:
    return "" if value is None else leaf("RequiresPreprocessing", BOOLEAN.format(value))


def _pairs(name: str, pairs: Pairs) -> str:
    if not pairs:
        return ""
    entries = [
        tag(
            "KeyValueOfstringanyType",
            leaf("Key", key)
            + leaf(
                "Value", value.text, f' xmlns:d6p1="{SCHEMA}" i:type="d6p1:{quote(value.type)}"'
            ),
        )
        for key, value in pairs
    ]
    return tag(name, "".join(entries))


def _optional(name: str, value: str | None) -> str:
    return "" if value is None else leaf(name, value)
