"""The grammar of the SQL filter language, one method per level of precedence.

From the lowest precedence: OR, AND, NOT, comparison (also IN, LIKE, IS NULL), ``+ -``, ``* / %``,
sign, and single terms. One grammar serves predicates and values, so that parentheses can contain
either; a value where a predicate is needed, or the reverse, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from pairbus.broker.entities.model_values import Pairs
from pairbus.broker.filters.ast import (
    Arithmetic,
    Compare,
    Condition,
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
    PropertyCall,
    Reference,
    Remove,
    Set,
    Sign,
    SystemProperty,
    Truth,
    UserProperty,
    is_escape,
    property_of,
)
from pairbus.broker.filters.tokens import Kind, Token, syntax_error, tokenize
from pairbus.broker.filters.values import Value

MAX_DEPTH = 32
"""How deep parentheses, signs and NOTs may nest."""


def parse_predicate(text: str, parameters: Pairs = ()) -> Condition:
    """The syntax tree of a filter expression; ArgumentError has the position of an error."""
    parser = _Parser(text, parameters)
    start = parser.token
    node = parser.condition(parser.disjunction(), start)
    if parser.token.kind is not Kind.END:
        parser.fail("Expected the end of the expression.")
    return node


def parse_statements(text: str, parameters: Pairs = ()) -> tuple[Set | Remove, ...]:
    """The statements of an action expression; ArgumentError has the position of an error."""
    parser = _Parser(text, parameters)
    statements: list[Set | Remove] = []
    while parser.token.kind is not Kind.END:
        statements.append(parser.statement())
        while parser.token.is_(";", ","):
            parser.advance()
    return tuple(statements)


class _Parser:
    def __init__(self, text: str, parameters: Pairs) -> None:
        self._text = text
        self._parameters = parameters
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def advance(self) -> Token:
        token = self.token
        self._at += 1
        return token

    def accept(self, *words: str) -> Token | None:
        return self.advance() if self.token.is_(*words) else None

    def expect(self, word: str) -> Token:
        if not self.token.is_(word):
            self.fail(f"Expected '{word}'.")
        return self.advance()

    def fail(self, detail: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        syntax_error(self._text, token.text or "end of expression", token.at, detail)

    def condition(self, node: Node, start: Token) -> Condition:
        if isinstance(node, Condition):
            return node
        if isinstance(node, Reference | Parameter) or (
            isinstance(node, Constant) and isinstance(node.value, bool)
        ):
            return Truth(node)
        return self.fail("Expected a condition, but this is a value.", start)

    def value(self, parse: Callable[[], Node]) -> Node:
        start = self.token
        return self.no_condition(parse(), start)

    def no_condition(self, node: Node, start: Token) -> Node:
        if isinstance(node, Condition):
            self.fail("Expected a value, but this is a condition.", start)
        return node

    # --- statements

    def statement(self) -> Set | Remove:
        if self.accept("SET"):
            target = self.property_()
            self.expect("=")
            return Set(target, self.value(self.sum_))
        if self.accept("REMOVE"):
            return Remove(self.property_())
        return self.fail("Expected SET or REMOVE.")

    # --- predicates

    def disjunction(self) -> Node:
        return self._logic("OR", lambda: self._logic("AND", self.negation))

    def _logic(self, word: str, operand: Callable[[], Node]) -> Node:
        start = self.token
        first = operand()
        if not self.token.is_(word):
            return first
        operands = [self.condition(first, start)]
        while self.accept(word):
            start = self.token
            operands.append(self.condition(operand(), start))
        return Logic(tuple(operands), decisive=word == "OR")

    def negation(self) -> Node:
        if not self.accept("NOT"):
            return self.comparison()
        self._enter()
        start = self.token
        node = Not(self.condition(self.negation(), start))
        self._depth -= 1
        return node

    def comparison(self) -> Node:
        start = self.token
        left = self.sum_()
        if operator := self.accept("=", "<>", "<", "<=", ">", ">="):
            self.no_condition(left, start)
            return Compare(str(operator.value), left, self.value(self.sum_))
        if self.accept("IS"):
            is_negated = self.accept("NOT") is not None
            self.expect("NULL")
            if not isinstance(left, Reference):
                self.fail("Only a property can be tested with IS NULL.", start)
            return IsNull(left, is_negated)
        is_negated = self.accept("NOT") is not None
        if is_negated and not self.token.is_("IN", "LIKE"):
            self.fail("Expected IN or LIKE.")
        if self.accept("IN"):
            self.no_condition(left, start)
            self.expect("(")
            choices = [self.value(self.sum_)]
            while self.accept(","):
                choices.append(self.value(self.sum_))
            self.expect(")")
            return In(left, tuple(choices), is_negated)
        if self.accept("LIKE"):
            self.no_condition(left, start)
            start = self.token
            pattern = self.value(self.sum_)
            if type(pattern) is Constant and not isinstance(pattern.value, str | None):
                self.fail("The pattern of LIKE is a string.", start)
            escape = None
            if self.accept("ESCAPE"):
                start = self.token
                escape = self.value(self.sum_)
                if type(escape) is Constant and not is_escape(escape.value):
                    self.fail("The escape character of LIKE is a string of length 1.", start)
            return Like(left, pattern, escape, is_negated)
        return left

    # --- values

    def sum_(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self.sign))

    def _chain(self, operators: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        start = self.token
        first = operand()
        rest: list[tuple[str, Node]] = []
        while operator := self.accept(*operators):
            self.no_condition(first, start)
            rest.append((str(operator.value), self.value(operand)))
        return Arithmetic(first, tuple(rest)) if rest else first

    def sign(self) -> Node:
        operator = self.accept("+", "-")
        if operator is None:
            return self.primary()
        self._enter()
        operand = self.value(self.sign)
        self._depth -= 1
        return Sign(str(operator.value), operand)

    def primary(self) -> Node:
        token = self.token
        if token.kind in (Kind.STRING, Kind.NUMBER):
            self.advance()
            return Constant(token.value)
        if token.kind is Kind.PARAMETER:
            self.advance()
            return Parameter(self._bound(token))
        if token.kind is Kind.NAME:
            return self._named()
        if self.accept("TRUE", "FALSE"):
            return Constant(token.value == "TRUE")
        if self.accept("NULL"):
            return Constant(None)
        if self.accept("EXISTS"):
            self.expect("(")
            start = self.token
            operand = self._named() if start.kind is Kind.NAME else None
            if not isinstance(operand, Reference):
                self.fail("Expected a property.", start)
            self.expect(")")
            return Exists(operand)
        if self.accept("("):
            self._enter()
            node = self.disjunction()
            self.expect(")")
            self._depth -= 1
            return node
        return self.fail("Expected a value or a property.")

    def _named(self) -> Node:
        """A property, or a function when a parenthesis follows an undelimited name."""
        token = self.token
        following = self._tokens[self._at + 1]
        if following.is_("(") and token.text == token.value:
            name = str(token.value).lower()
            self.advance()
            self.advance()
            if name == "newid":
                self.expect(")")
                return NewId()
            if name in ("property", "p"):
                self._enter()
                argument = self.value(self.sum_)
                self.expect(")")
                self._depth -= 1
                return PropertyCall(argument)
            self.fail("There is no function of this name.", token)
        return self.property_()

    def _bound(self, parameter: Token) -> Value:
        for key, value in self._parameters:
            if ("@" + key.lstrip("@")).lower() == str(parameter.value).lower():
                return value.value
        return self.fail(f"The parameter '{parameter.value}' has no value.", parameter)

    def property_(self) -> UserProperty | SystemProperty:
        token = self.token
        if token.kind is not Kind.NAME:
            self.fail("Expected a property.")
        self.advance()
        if not self.accept("."):
            return UserProperty(str(token.value))
        scope = str(token.value)
        if scope.lower() not in ("sys", "user"):
            self.fail("The scope of a property is sys or user.", token)
        name = self.token
        # After a scope a keyword can only be a name.
        if name.kind not in (Kind.NAME, Kind.KEYWORD):
            self.fail("Expected the name of a property.")
        self.advance()
        return property_of(scope, name.text if name.kind is Kind.KEYWORD else str(name.value))

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"The expression is nested deeper than {MAX_DEPTH} levels.")
