"""Reads descriptions from the XML of a request, by the table of entity properties."""

from __future__ import annotations

import base64
import secrets
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from pairbus.broker.admin.atom import Element
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    AccessRight,
    AuthorizationRule,
    CorrelationFilter,
    EntityDescription,
    FalseFilter,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from pairbus.broker.entities.model_properties import AUTHORIZATION_RULES, camel_case, columns
from pairbus.broker.entities.model_rules import CORRELATION_FIELDS
from pairbus.broker.entities.model_values import Pairs, parse_typed

D = TypeVar("D", bound=EntityDescription)


def read_description(element: Element, start: D, old: D | None, api_version: str) -> D:
    """The entity that a client describes.

    Args:
        element: The description that the client sent.
        start: A description with the entity's name and defaults.
        old: The description that an update replaces; None when the entity is created.
        api_version: The version of the API that the client uses.
    """
    known = columns(type(start))
    values: dict[str, Any] = {}
    if old is not None:
        values = {
            column.field: getattr(old, column.field)
            for column in known.values()
            if column.property.is_kept
        }
    for child in element:
        column = known.get(child.name)
        if column is None or child.is_nil or column.property.is_read_only:
            continue
        since = column.property.since
        if api_version < since:
            raise ArgumentError(f"{column.xml} needs api-version {since} or later.")
        if column.property.type is AUTHORIZATION_RULES:
            values[column.field] = tuple(_authorization_rule(rule) for rule in child)
        else:
            values[column.field] = column.property.parse(column.xml, child.text)
    return replace(start, **values)


def _authorization_rule(element: Element) -> AuthorizationRule:
    def moment(name: str) -> datetime | None:
        value = parse_typed("dateTime", text) if (text := _text(element, name)) else None
        assert value is None or isinstance(value, datetime)
        return value

    try:
        rights = tuple(AccessRight(right.text.strip()) for right in element.find("Rights") or ())
    except ValueError:
        raise ArgumentError("An authorization rule grants Send, Listen or Manage.") from None
    return AuthorizationRule(
        key_name=_text(element, "KeyName") or "",
        rights=rights,
        primary_key=_text(element, "PrimaryKey") or new_key(),
        secondary_key=_text(element, "SecondaryKey") or new_key(),
        type=element.attributes.get("type", "SharedAccessAuthorizationRule"),
        claim_type=_text(element, "ClaimType") or "SharedAccessKey",
        claim_value=_text(element, "ClaimValue") or "None",
        created_at_utc=moment("CreatedTime"),
        modified_at_utc=moment("ModifiedTime"),
    )


def new_key() -> str:
    """A new key of 256 random bits, as the service makes them."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


def read_rule(element: Element, name: str) -> RuleDescription:
    """The rule that a client describes."""
    filter_element, action_element = element.find("Filter"), element.find("Action")
    rule = RuleDescription(name)
    if filter_element is not None and not filter_element.is_nil:
        rule = replace(rule, filter=_filter(filter_element))
    if action_element is not None and not action_element.is_nil:
        rule = replace(rule, action=_action(action_element))
    return rule


def _filter(element: Element) -> RuleFilter:
    match _kind(element):
        case "TrueFilter":
            return TrueFilter(_text(element, "SqlExpression") or "1=1", _preprocess(element))
        case "FalseFilter":
            return FalseFilter(_text(element, "SqlExpression") or "1=0", _preprocess(element))
        case "SqlFilter":
            return SqlFilter(*_sql(element))
        case "CorrelationFilter":
            values = {name: _text(element, camel_case(name)) for name in CORRELATION_FIELDS}
            return CorrelationFilter(**values, properties=_pairs(element.find("Properties")))
    raise ArgumentError(f"There is no filter of type '{_kind(element)[:64]}'.")


def _action(element: Element) -> SqlAction | None:
    match _kind(element):
        case "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            return SqlAction(*_sql(element))
    raise ArgumentError(f"There is no action of type '{_kind(element)[:64]}'.")


def _sql(element: Element) -> tuple[str, Pairs, bool | None, str | None]:
    return (
        _text(element, "SqlExpression") or "",
        _pairs(element.find("Parameters")),
        _preprocess(element),
        _text(element, "CompatibilityLevel"),
    )


def _preprocess(element: Element) -> bool | None:
    text = _text(element, "RequiresPreprocessing")
    return None if text is None else bool(parse_typed("boolean", text))


def _pairs(element: Element | None) -> Pairs:
    pairs: list[tuple[str, TypedValue]] = []
    for child in element or ():
        key, value = child.find("Key"), child.find("Value")
        if key is None or value is None:
            raise ArgumentError("A parameter needs a Key and a Value.")
        pairs.append((key.text, TypedValue(_kind(value) or "string", value.text)))
    return tuple(pairs)


def _kind(element: Element) -> str:
    return element.attributes.get("type", "").rpartition(":")[2]


def _text(element: Element, name: str) -> str | None:
    child = element.find(name)
    return None if child is None or child.is_nil else child.text
