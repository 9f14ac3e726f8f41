"""Compiled rules of subscriptions: filters that accept or reject, actions that change.

``compile_filter`` and ``compile_action`` parse an expression, bind its parameters and build one
Python function. A syntax error raises ArgumentError with its position. Evaluation uses three-valued
logic: a property that is absent or null makes an expression *unknown* (None), and a message matches
only if the filter is true. Operations on incompatible types raise :class:`FilterError`.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Protocol, TypeAlias, assert_never

from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    RuleFilter,
    SqlFilter,
    TrueFilter,
)
from pairbus.broker.entities.model_values import Pairs
from pairbus.broker.filters.ast import (
    Arithmetic,
    Compare,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    Logic,
    NewId,
    Node,
    Not,
    Parameter,
    Property,
    PropertyCall,
    Sign,
)
from pairbus.broker.filters.message_view import (
    SYSTEM_PROPERTIES,
    MessageView,
    canonical_value,
    find_property,
    look_up,
    split_scope,
    system_value,
)
from pairbus.broker.filters.parser import parse_predicate
from pairbus.broker.filters.values import (
    FilterError,
    LikePattern,
    Value,
    calculate,
    compare,
    is_equal,
    is_same,
    read,
    sign,
    type_name,
)

Evaluate: TypeAlias = Callable[[MessageView], Value]
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
            condition = condition_of(parse_predicate(description.sql_expression), description)
            return lambda view: condition(view) is True
        case _:
            assert_never(description)


def check_rule(rule: RuleDescription) -> RuleDescription:
    """The rule, checked against the service's limits and compiled."""
    from pairbus.broker.filters.actions import compile_action  # it builds on this module

    rule = rule.validated()
    compile_filter(rule.filter)
    if rule.action is not None:
        compile_action(rule.action)
    return rule


# --- correlation filters --------------------------------------------------------------------------


def _correlation(description: CorrelationFilter) -> Filter:
    wanted = {
        "correlation_id": description.correlation_id,
        "message_id": description.message_id,
        "to": description.to,
        "reply_to": description.reply_to,
        "subject": description.label,
        "session_id": description.session_id,
        "reply_to_session_id": description.reply_to_session_id,
        "content_type": description.content_type,
    }
    system = [(name, value) for name, value in wanted.items() if value is not None]
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


# --- SQL ------------------------------------------------------------------------------------------


class _HasParameters(Protocol):
    @property
    def parameters(self) -> Pairs: ...


def _bind(name: str, owner: _HasParameters) -> Value:
    for key, value in owner.parameters:
        if ("@" + key.lstrip("@")).lower() == name.lower():
            return value.value
    raise ArgumentError(f"The parameter '{name}' has no value.")


def condition_of(node: Node, owner: _HasParameters) -> Callable[[MessageView], bool | None]:
    """The function of a condition: true, false or unknown."""
    match node:
        case Logic(operator, operands):
            parts = tuple(condition_of(operand, owner) for operand in operands)
            return _logic(parts, decisive=operator == "OR")
        case Not(operand):
            negated = condition_of(operand, owner)

            def negate(view: MessageView) -> bool | None:
                result = negated(view)
                return None if result is None else not result

            return negate
        case Compare(operator, left_node, right_node):
            left, right = value_of(left_node, owner), value_of(right_node, owner)
            return lambda view: compare(operator, left(view), right(view))
        case In():
            return _membership(node, owner)
        case Like():
            return _like(node, owner)
        case IsNull(operand, is_negated):
            value = value_of(operand, owner)
            return lambda view: (value(view) is None) != is_negated
        case Exists(operand):
            return _exists(operand, owner)
        case _:
            return _truth(value_of(node, owner))


def _truth(value: Evaluate) -> Callable[[MessageView], bool | None]:
    def truth(view: MessageView) -> bool | None:
        result = value(view)
        if result is None or isinstance(result, bool):
            return result
        raise FilterError(f"Expected a condition, but the value is of type {type_name(result)}.")

    return truth


def _logic(
    parts: tuple[Callable[[MessageView], bool | None], ...], *, decisive: bool
) -> Callable[[MessageView], bool | None]:
    """AND ends at the first false, OR at the first true; otherwise one unknown makes it unknown."""

    def logic(view: MessageView) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            value = part(view)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return logic


def _membership(node: In, owner: _HasParameters) -> Callable[[MessageView], bool | None]:
    operand = value_of(node.operand, owner)
    choices = tuple(value_of(choice, owner) for choice in node.choices)
    negated = node.negated

    def membership(view: MessageView) -> bool | None:
        value = operand(view)
        if value is None:
            return None
        result: bool | None = False
        for choice in choices:
            equal = is_equal(value, choice(view))
            if equal:
                return not negated
            if equal is None:
                result = None
        return None if result is None else negated

    return membership


@functools.lru_cache(maxsize=256)
def _pattern(pattern: str, escape: str | None) -> LikePattern:
    return LikePattern(pattern, escape)


def _like(node: Like, owner: _HasParameters) -> Callable[[MessageView], bool | None]:
    operand, pattern = value_of(node.operand, owner), value_of(node.pattern, owner)
    escape = None if node.escape is None else value_of(node.escape, owner)
    negated = node.negated
    if isinstance(node.escape, Constant) and not _is_escape(node.escape.value):
        raise ArgumentError("The escape character of LIKE is a string of length 1.")
    if isinstance(node.pattern, Constant) and not isinstance(node.pattern.value, str | None):
        raise ArgumentError("The pattern of LIKE is a string.")

    def like(view: MessageView) -> bool | None:
        text, wanted = operand(view), pattern(view)
        escaped_by = None if escape is None else escape(view)
        if text is None or wanted is None or (escape is not None and escaped_by is None):
            return None
        if not isinstance(text, str) or not isinstance(wanted, str):
            raise FilterError(f"LIKE does not apply to {type_name(text)}.")
        if escaped_by is not None and not _is_escape(escaped_by):
            raise FilterError("The escape character of LIKE is a string of length 1.")
        return _pattern(wanted, escaped_by).matches(text) != negated

    return like


def _is_escape(value: Value) -> bool:
    return isinstance(value, str) and len(value) == 1


def _exists(
    operand: Property | PropertyCall, owner: _HasParameters
) -> Callable[[MessageView], bool | None]:
    if isinstance(operand, Property):
        wanted = operand
        return lambda view: look_up(view, wanted)[0]
    name = value_of(operand.name, owner)

    def exists(view: MessageView) -> bool | None:
        computed = name(view)
        if computed is None:
            return None
        return look_up(view, split_scope(_name(computed)))[0]

    return exists


def _name(value: Value) -> str:
    if not isinstance(value, str):
        raise FilterError(f"The name of a property is a string, not {type_name(value)}.")
    return value


def value_of(node: Node, owner: _HasParameters) -> Evaluate:
    """The function of a value."""
    match node:
        case Constant(constant):
            return lambda view: constant
        case Parameter(name):
            bound = _bind(name, owner)
            return lambda view: bound
        case Property():
            return _property(node)
        case PropertyCall(name_node):
            named = value_of(name_node, owner)

            def call(view: MessageView) -> Value:
                name = named(view)
                return None if name is None else look_up(view, split_scope(_name(name)))[1]

            return call
        case NewId():
            return lambda view: uuid.uuid4()
        case Sign(operator, operand_node):
            operand = value_of(operand_node, owner)
            return lambda view: sign(operator, operand(view))
        case Arithmetic(first_node, rest_nodes):
            first = value_of(first_node, owner)
            rest = tuple((op, value_of(operand, owner)) for op, operand in rest_nodes)

            def arithmetic(view: MessageView) -> Value:
                result = first(view)
                for op, operand in rest:
                    result = calculate(op, result, operand(view))
                return result

            return arithmetic
        case _:
            raise AssertionError(f"{type(node).__name__} is not a value")  # the parser refuses it


def _property(node: Property) -> Evaluate:
    name = node.name
    if node.is_system:
        canonical = SYSTEM_PROPERTIES.get(name.lower())
        if canonical is None:
            return lambda view: system_value(view, name)  # an error, but only when it is evaluated
        return lambda view: canonical_value(view, canonical)

    def user(view: MessageView) -> Value:
        properties = view.properties
        if name in properties:
            return read(properties[name])
        return read(find_property(properties, name)[1])

    return user
