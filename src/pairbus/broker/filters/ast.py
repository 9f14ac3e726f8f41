"""The syntax tree of the SQL filter language: each node evaluates itself on a message.

Evaluation uses three-valued logic: a property that is absent or null makes an expression *unknown*
(None). Operations on incompatible types raise :class:`FilterError`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TypeGuard

from pairbus.broker.filters.message_view import (
    SYSTEM_PROPERTIES,
    MessageView,
    canonical_value,
    find_property,
)
from pairbus.broker.filters.values import (
    FilterError,
    Value,
    calculate,
    compare,
    like_pattern,
    read,
    sign,
    type_name,
)


class Node:
    """A part of an expression."""

    __slots__ = ()

    def evaluate(self, view: MessageView) -> Value:
        """The value for a message."""
        raise NotImplementedError


class Condition(Node):
    """A part that is true, false or unknown, and not a value."""

    __slots__ = ()

    def evaluate(self, view: MessageView) -> bool | None:
        """Whether the message meets the condition; None if that is unknown."""
        raise NotImplementedError


# --- values ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Constant(Node):
    """A literal; None is NULL."""

    value: Value

    def evaluate(self, view: MessageView) -> Value:
        """The literal."""
        return self.value


class Parameter(Constant):
    """``@name`` with the value that the rule gives it."""

    __slots__ = ()


class Reference(Node):
    """A node that names a property."""

    __slots__ = ()

    def find(self, view: MessageView) -> tuple[bool | None, Value]:
        """Whether the property is set (None if its name is unknown), and its value."""
        raise NotImplementedError


@dataclass(slots=True)
class UserProperty(Reference):
    """An application property."""

    name: str

    def find(self, view: MessageView) -> tuple[bool | None, Value]:
        """Whether the property is set, and its value."""
        found, raw = find_property(view.properties, self.name)
        return found, read(raw)

    def evaluate(self, view: MessageView) -> Value:
        """The value of the property."""
        name, properties = self.name, view.properties
        if name in properties:
            return read(properties[name])
        return read(find_property(properties, name)[1])


class SystemProperty(Reference):
    """A property of the message itself; ``canonical`` is its name in a view, None if unknown."""

    __slots__ = ("canonical", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.canonical = SYSTEM_PROPERTIES.get(name.lower())

    def find(self, view: MessageView) -> tuple[bool | None, Value]:
        """Whether the property is set, and its value."""
        value = self.evaluate(view)
        return value is not None, value

    def evaluate(self, view: MessageView) -> Value:
        """The value of the property; FilterError if there is no property of this name."""
        if self.canonical is None:
            raise FilterError(f"The system property '{self.name}' does not exist.")
        return canonical_value(view, self.canonical)


def property_of(scope: str, name: str) -> UserProperty | SystemProperty:
    """The property of this name; *scope* is ``sys`` or ``user``, in any case."""
    return SystemProperty(name) if scope.lower() == "sys" else UserProperty(name)


@dataclass(slots=True)
class PropertyCall(Reference):
    """``property(name)``: the name is computed, and may begin with its scope."""

    name: Node

    def find(self, view: MessageView) -> tuple[bool | None, Value]:
        """Whether the property is set (None if its name is unknown), and its value."""
        name = self.name.evaluate(view)
        if name is None:
            return None, None
        if not isinstance(name, str):
            raise FilterError(f"The name of a property is a string, not {type_name(name)}.")
        scope, dot, rest = name.partition(".")
        if dot and scope.lower() in ("sys", "user"):
            return property_of(scope, rest).find(view)
        return UserProperty(name).find(view)

    def evaluate(self, view: MessageView) -> Value:
        """The value of the property."""
        return self.find(view)[1]


class NewId(Node):
    """``newid()``: a new GUID each time."""

    __slots__ = ()

    def evaluate(self, view: MessageView) -> Value:
        """A GUID."""
        return uuid.uuid4()


@dataclass(slots=True)
class Sign(Node):
    """A plus or minus in front of a value."""

    operator: str
    operand: Node

    def evaluate(self, view: MessageView) -> Value:
        """The value with its sign."""
        return sign(self.operator, self.operand.evaluate(view))


@dataclass(slots=True)
class Arithmetic(Node):
    """A chain of operators of the same precedence, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]

    def evaluate(self, view: MessageView) -> Value:
        """The result of the chain."""
        result = self.first.evaluate(view)
        for operator, operand in self.rest:
            result = calculate(operator, result, operand.evaluate(view))
        return result


# --- conditions -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Truth(Condition):
    """A value as a condition: whether it is boolean is known when it is evaluated."""

    operand: Node

    def evaluate(self, view: MessageView) -> bool | None:
        """The value, which must be boolean."""
        result = self.operand.evaluate(view)
        if result is None or isinstance(result, bool):
            return result
        raise FilterError(f"Expected a condition, but the value is of type {type_name(result)}.")


@dataclass(slots=True)
class Compare(Condition):
    """Two values and an operator between them."""

    operator: str
    left: Node
    right: Node

    def evaluate(self, view: MessageView) -> bool | None:
        """The result of the comparison."""
        return compare(self.operator, self.left.evaluate(view), self.right.evaluate(view))


@dataclass(slots=True)
class In(Condition):
    """Whether a value is one of several."""

    operand: Node
    choices: tuple[Node, ...]
    is_negated: bool

    def evaluate(self, view: MessageView) -> bool | None:
        """Unknown if the value, or one of the choices that it does not equal, is unknown."""
        value = self.operand.evaluate(view)
        if value is None:
            return None
        result: bool | None = self.is_negated
        for choice in self.choices:
            equal = compare("=", value, choice.evaluate(view))
            if equal:
                return not self.is_negated
            if equal is None:
                result = None
        return result


@dataclass(slots=True)
class Like(Condition):
    """Whether a string fits a pattern."""

    operand: Node
    pattern: Node
    escape: Node | None
    is_negated: bool

    def evaluate(self, view: MessageView) -> bool | None:
        """Unknown if one of the strings is unknown."""
        text, wanted = self.operand.evaluate(view), self.pattern.evaluate(view)
        escape = None if self.escape is None else self.escape.evaluate(view)
        if text is None or wanted is None or (self.escape is not None and escape is None):
            return None
        if not isinstance(text, str) or not isinstance(wanted, str):
            raise FilterError(f"LIKE does not apply to {type_name(text)}.")
        if escape is not None and not is_escape(escape):
            raise FilterError("The escape character of LIKE is a string of length 1.")
        matches = like_pattern(wanted, escape).fullmatch(text) is not None
        return matches != self.is_negated


def is_escape(value: Value) -> TypeGuard[str]:
    """Whether a value can be the escape character of LIKE."""
    return isinstance(value, str) and len(value) == 1


@dataclass(slots=True)
class IsNull(Condition):
    """Whether a property is missing or null."""

    operand: Reference
    is_negated: bool

    def evaluate(self, view: MessageView) -> bool | None:
        """Never unknown."""
        return (self.operand.evaluate(view) is None) != self.is_negated


@dataclass(slots=True)
class Exists(Condition):
    """Whether a property is there, null or not."""

    operand: Reference

    def evaluate(self, view: MessageView) -> bool | None:
        """Unknown if the name of the property is unknown."""
        return self.operand.find(view)[0]


@dataclass(slots=True)
class Not(Condition):
    """Negation."""

    operand: Condition

    def evaluate(self, view: MessageView) -> bool | None:
        """Unknown stays unknown."""
        result = self.operand.evaluate(view)
        return None if result is None else not result


@dataclass(slots=True)
class Logic(Condition):
    """``AND`` or ``OR`` over two or more conditions."""

    operands: tuple[Condition, ...]
    decisive: bool
    """The value of an operand that ends the evaluation: False for AND, True for OR."""

    def evaluate(self, view: MessageView) -> bool | None:
        """One unknown operand makes it unknown, unless another one is decisive."""
        decisive = self.decisive
        result: bool | None = not decisive
        for operand in self.operands:
            value = operand.evaluate(view)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result


# --- statements -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Set:
    """``SET property = expression``."""

    target: UserProperty | SystemProperty
    value: Node


@dataclass(slots=True)
class Remove:
    """``REMOVE property``."""

    target: UserProperty | SystemProperty
