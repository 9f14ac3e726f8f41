"""Rules as XML: filters and actions, read from requests and written into answers."""

from __future__ import annotations

from dataclasses import replace

from pairbus.broker.admin.atom import ROOT, SCHEMA, Element, leaf, quote, tag
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
from pairbus.broker.entities.model_properties import camel_case
from pairbus.broker.entities.model_rules import CORRELATION_FIELDS
from pairbus.broker.entities.model_values import Pairs, parse_typed

# --- reading --------------------------------------------------------------------------------------


def read_rule(element: Element, name: str) -> RuleDescription:
    """The rule that a client describes."""
    rule = RuleDescription(name)
    if (part := element.find_value("Filter")) is not None:
        rule = replace(rule, filter=_read_filter(part))
    if (part := element.find_value("Action")) is not None:
        rule = replace(rule, action=_read_action(part))
    return rule


def _read_filter(element: Element) -> RuleFilter:
    match _kind(element):
        case "TrueFilter":
            return TrueFilter(element.find_text("SqlExpression") or "1=1", _preprocess(element))
        case "FalseFilter":
            return FalseFilter(element.find_text("SqlExpression") or "1=0", _preprocess(element))
        case "SqlFilter":
            return SqlFilter(*_read_sql(element))
        case "CorrelationFilter":
            values = {name: element.find_text(camel_case(name)) for name in CORRELATION_FIELDS}
            return CorrelationFilter(**values, properties=_read_pairs(element.find("Properties")))
    raise ArgumentError(f"There is no filter of type '{_kind(element)[:64]}'.")


def _read_action(element: Element) -> SqlAction | None:
    match _kind(element):
        case "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            return SqlAction(*_read_sql(element))
    raise ArgumentError(f"There is no action of type '{_kind(element)[:64]}'.")


def _read_sql(element: Element) -> tuple[str, Pairs, bool | None, str | None]:
    return (
        element.find_text("SqlExpression") or "",
        _read_pairs(element.find("Parameters")),
        _preprocess(element),
        element.find_text("CompatibilityLevel"),
    )


def _preprocess(element: Element) -> bool | None:
    text = element.find_text("RequiresPreprocessing")
    return None if text is None else bool(parse_typed("boolean", text))


def _read_pairs(element: Element | None) -> Pairs:
    pairs: list[tuple[str, TypedValue]] = []
    for child in element or ():
        key, value = child.find("Key"), child.find("Value")
        if key is None or value is None:
            raise ArgumentError("A parameter needs a Key and a Value.")
        pairs.append((key.text, TypedValue(_kind(value) or "string", value.text)))
    return tuple(pairs)


def _kind(element: Element) -> str:
    return element.attributes.get("type", "").rpartition(":")[2]


# --- writing --------------------------------------------------------------------------------------


def write_rule(rule: RuleDescription) -> str:
    """A rule as XML."""
    return tag(
        "RuleDescription",
        _write_filter(rule.filter)
        + _write_action(rule.action)
        + leaf("CreatedAt", rule.created_at_utc)
        + leaf("Name", rule.name),
        ROOT,
    )


def _write_filter(description: RuleFilter) -> str:
    match description:
        case CorrelationFilter():
            content = "".join(
                leaf(camel_case(name), getattr(description, name)) for name in CORRELATION_FIELDS
            ) + _write_pairs("Properties", description.properties)
        case SqlFilter():
            content = _write_sql(description)
        case TrueFilter() | FalseFilter():
            content = (
                leaf("SqlExpression", description.sql_expression)
                + leaf("CompatibilityLevel", "20")
                + leaf("RequiresPreprocessing", description.requires_preprocessing)
            )
    return tag("Filter", content, f' i:type="{type(description).__name__}"')


def _write_action(action: SqlAction | None) -> str:
    if action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    return tag("Action", _write_sql(action), ' i:type="SqlRuleAction"')


def _write_sql(part: SqlFilter | SqlAction) -> str:
    return (
        leaf("SqlExpression", part.sql_expression)
        + leaf("CompatibilityLevel", part.compatibility_level)
        + _write_pairs("Parameters", part.parameters)
        + leaf("RequiresPreprocessing", part.requires_preprocessing)
    )


def _write_pairs(name: str, pairs: Pairs) -> str:
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
