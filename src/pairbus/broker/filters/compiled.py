"""Compiled rules of subscriptions: filters that accept or reject, actions that change.

``compile_filter`` and ``compile_action`` parse an expression with its parameters. A syntax error
raises ArgumentError with its position. A message matches only if the filter is true, not if it is
unknown. Operations on incompatible types raise :class:`FilterError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never

from pairbus.broker.entities.model import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    RuleFilter,
    SqlFilter,
    TrueFilter,
)
from pairbus.broker.entities.model_rules import CORRELATION_FIELDS
from pairbus.broker.filters.actions import compile_action
from pairbus.broker.filters.message_view import MessageView, canonical_value, find_property
from pairbus.broker.filters.parser import parse_predicate
from pairbus.broker.filters.values import FilterError, is_same, read

Filter: TypeAlias = Callable[[MessageView], bool]


def compile_filter(description: RuleFilter) -> Filter:
    """A function that returns whether a message matches; it may raise FilterError."""
    match description:
        case TrueFilter():
            return lambda view: True
        case FalseFilter():
            return lambda view: False
        case CorrelationFilter():
            return _correlation(description)
        case SqlFilter():
            evaluate = parse_predicate(description.sql_expression, description.parameters).evaluate
            return lambda view: evaluate(view) is True
        case _:
            assert_never(description)


def check_rule(rule: RuleDescription) -> RuleDescription:
    """The rule, checked against the service's limits and compiled."""
    rule = rule.validated()
    compile_filter(rule.filter)
    if rule.action is not None:
        compile_action(rule.action)
    return rule


def _correlation(description: CorrelationFilter) -> Filter:
    system = [
        ("subject" if name == "label" else name, value)
        for name in CORRELATION_FIELDS
        if (value := getattr(description, name)) is not None
    ]
    user = [(key, value.value) for key, value in description.properties]

    def matches(view: MessageView) -> bool:
        try:
            for name, wanted_text in system:
                if canonical_value(view, name) != wanted_text:
                    return False
            for key, expected in user:
                found, raw = find_property(view.properties, key)
                if not found or not is_same(read(raw), expected):
                    return False
        except FilterError:  # a list or a map is not equal to any value of a rule
            return False
        return True

    return matches
