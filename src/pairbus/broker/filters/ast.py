"""The syntax tree of the SQL filter language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; None is NULL."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """``@name``, bound when the rule is compiled."""

    name: str


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message: of the system, or of the user."""

    name: str
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class PropertyCall:
    """``property(name)``: the name is computed."""

    name: Node


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``: a new GUID each time."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A plus or minus in front of a value."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A chain of operators of the same precedence, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values and an operator between them."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class In:
    """Whether a value is one of several."""

    operand: Node
    choices: tuple[Node, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a string fits a pattern."""

    operand: Node
    pattern: Node
    escape: Node | None
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a property is missing or null."""

    operand: Property | PropertyCall
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether a property is there, null or not."""

    operand: Property | PropertyCall


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """``AND`` or ``OR`` over two or more predicates."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Set:
    """``SET property = expression``."""

    target: Property
    value: Node


@dataclass(frozen=True, slots=True)
class Remove:
    """``REMOVE property``."""

    target: Property


Node: TypeAlias = (
    Constant | Parameter | Property | PropertyCall | NewId | Sign | Arithmetic
    | Compare | In | Like | IsNull | Exists | Not | Logic
)  # fmt: skip
Statement: TypeAlias = Set | Remove

PREDICATES = (Compare, In, Like, IsNull, Exists, Not, Logic)
CONDITIONS = (*PREDICATES, Property, PropertyCall, Parameter)
"""Nodes that can be conditions; whether a value is boolean is known when it is evaluated."""
