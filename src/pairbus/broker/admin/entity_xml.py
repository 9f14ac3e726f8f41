"""Queues, topics and subscriptions as XML, by the table of entity properties.

Elements are written in the order of the service, and read in any order.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from pairbus.broker.admin.atom import COUNTS, ROOT, Element, leaf, quote, tag
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    AccessRight,
    AuthorizationRule,
    EntityDescription,
    RuntimeProperties,
)
from pairbus.broker.entities.model_properties import (
    AUTHORIZATION_RULES,
    PATH,
    Column,
    ServerElement,
    camel_case,
    columns,
)
from pairbus.broker.entities.model_values import parse_typed

D = TypeVar("D", bound=EntityDescription)
Address = Callable[[str], str]
"""Makes the address of an entity from its path, in the form that the client uses."""

_TEXTS = ("claim_type", "claim_value", "key_name", "primary_key", "secondary_key")
"""The fields of an authorization rule that are text."""

# --- reading --------------------------------------------------------------------------------------


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
            values[column.field] = tuple(_read_authorization_rule(rule) for rule in child)
        else:
            values[column.field] = column.property.parse(column.xml, child.text)
    return replace(start, **values)


def _read_authorization_rule(element: Element) -> AuthorizationRule:
    def moment(name: str) -> datetime | None:
        value = parse_typed("dateTime", text) if (text := element.find_text(name)) else None
        assert value is None or isinstance(value, datetime)
        return value

    try:
        rights = tuple(AccessRight(right.text.strip()) for right in element.find("Rights") or ())
    except ValueError:
        raise ArgumentError("An authorization rule grants Send, Listen or Manage.") from None
    found: dict[str, Any] = {name: element.find_text(camel_case(name)) for name in _TEXTS}
    rule = AuthorizationRule(
        key_name="",
        rights=rights,
        primary_key=new_key(),
        secondary_key=new_key(),
        created_at_utc=moment("CreatedTime"),
        modified_at_utc=moment("ModifiedTime"),
    )
    found["type"] = element.attributes.get("type")
    return replace(rule, **{name: text for name, text in found.items() if text})


def new_key() -> str:
    """A new key of 256 random bits, as the service makes them."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


# --- writing --------------------------------------------------------------------------------------


def write_description(
    description: EntityDescription, runtime: RuntimeProperties, address: Address, api_version: str
) -> str:
    """A queue, topic or subscription as XML."""
    parts = []
    for column in columns(type(description)).values():
        if column.property.since <= api_version:
            parts.append(_property(column, getattr(description, column.field), address))
        parts += [_server_element(element, runtime) for element in column.followed_by]
    return tag(type(description).__name__, "".join(parts), ROOT)


def _property(column: Column, value: Any, address: Address) -> str:
    if value is None:
        return ""
    if column.property.type is AUTHORIZATION_RULES:
        return tag(column.xml, "".join(_write_authorization_rule(rule) for rule in value))
    text = address(value) if column.property.type is PATH else column.property.type.format(value)
    return leaf(column.xml, text)


def _server_element(element: ServerElement, runtime: RuntimeProperties) -> str:
    if element.constant:
        return leaf(element.xml, element.constant)
    if len(element.fields) == 1:
        return leaf(element.xml, getattr(runtime, element.fields[0]))
    counts = [
        leaf(f"d2p1:{camel_case(field)}", getattr(runtime, field)) for field in element.fields
    ]
    return tag(element.xml, "".join(counts), f' xmlns:d2p1="{COUNTS}"')


def _write_authorization_rule(rule: AuthorizationRule) -> str:
    rights = "".join(leaf("AccessRights", right.value) for right in rule.rights)
    return tag(
        "AuthorizationRule",
        leaf("ClaimType", rule.claim_type)
        + leaf("ClaimValue", rule.claim_value)
        + tag("Rights", rights)
        + leaf("CreatedTime", rule.created_at_utc)
        + leaf("ModifiedTime", rule.modified_at_utc)
        + leaf("KeyName", rule.key_name)
        + leaf("PrimaryKey", rule.primary_key)
        + leaf("SecondaryKey", rule.secondary_key),
        f' i:type="{quote(rule.type)}"',
    )
