"""The tokens of the SQL filter language, each with its position."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple, NoReturn

from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model_limits import MAX_SQL_LENGTH


class Kind(enum.Enum):
    """The kind of a token."""

    KEYWORD = "keyword"
    NAME = "name"  # value: the name without its delimiters
    STRING = "string"
    NUMBER = "number"  # value: int or float
    PARAMETER = "parameter"  # value: the name with its @
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """One token: its ``text`` as written, its ``value``, and its offset ``at``."""

    kind: Kind
    text: str
    value: str | int | float
    at: int

    def is_(self, *words: str) -> bool:
        """Whether this is one of these keywords or symbols."""
        return self.kind in (Kind.KEYWORD, Kind.SYMBOL) and self.value in words


KEYWORDS = frozenset({
    "AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE", "SET",
    "REMOVE",
})  # fmt: skip
_UNCLOSED = {"'": "string", '"': "name", "[": "name"}
_TOKEN = re.compile(
    r"""
      \s+
    | (?P<string> '(?:[^']|'')*+' )
    | (?P<name> "(?:[^"]|"")*+" | \[(?:[^\]]|\]\])*+\] | [^\W\d_]\w* )
    | (?P<number> (?:\d+\.?\d*|\.\d+) (?:[eE][+-]?\d+)? \w* )
    | (?P<parameter> @\w* )
    | (?P<symbol> <>|!=|<=|>=|[=<>+\-*/%(),.;] )
    """,
    re.VERBOSE,
)
"""White space, or a token; in a string or name, a doubled closing character stands for itself."""


def syntax_error(text: str, token_text: str, at: int, detail: str) -> NoReturn:
    """Refuse an expression, with the position of the error as the service writes it."""
    line = text.count("\n", 0, at) + 1
    offset = at - (text.rfind("\n", 0, at) + 1) + 1
    raise ArgumentError(
        "There was an error parsing the SQL expression. "
        f"[Token line number = {line}, Token line offset = {offset}, "
        f"Token in error = '{token_text[:64]}'] {detail}"
    )


def tokenize(text: str) -> list[Token]:
    """The tokens of an expression, then one of kind END; an error has its position."""
    if len(text) > MAX_SQL_LENGTH:
        raise ArgumentError(f"The SQL expression is longer than {MAX_SQL_LENGTH} characters.")
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] in _UNCLOSED:
                syntax_error(text, text[at:], at, f"The {_UNCLOSED[text[at]]} is not closed.")
            syntax_error(text, text[at], at, "This character has no meaning here.")
        if match.lastgroup is not None:
            tokens.append(_token(text, match[0], Kind(match.lastgroup), at))
        at = match.end()
    tokens.append(Token(Kind.END, "", "", len(text)))
    return tokens


def _token(text: str, written: str, kind: Kind, at: int) -> Token:
    value: str | int | float = written
    match kind:
        case Kind.STRING:
            value = written[1:-1].replace("''", "'")
        case Kind.NAME if written[0] in _UNCLOSED:
            value = written[1:-1].replace(written[-1] * 2, written[-1])
            if not value:
                syntax_error(text, written, at, "A name cannot be empty.")
        case Kind.NAME | Kind.PARAMETER:
            for offset, character in enumerate(written):
                if character not in "@_" and not character.isalpha() and not character.isdecimal():
                    syntax_error(
                        text, character, at + offset, "This character has no meaning here."
                    )
            if written == "@":
                syntax_error(text, "@", at, "A parameter needs a name.")
            if written.upper() in KEYWORDS:
                kind, value = Kind.KEYWORD, written.upper()
        case Kind.NUMBER:
            try:
                value = int(written) if written.isdecimal() else float(written)
            except ValueError:
                value = written
            if isinstance(value, str) or "_" in written:
                syntax_error(text, written, at, "This is neither a number nor a name.")
            if isinstance(value, int) and value > 1 << 63:  # 2**63 itself is valid after a minus
                syntax_error(text, written, at, "The number does not fit into 64 bits.")
        case Kind.SYMBOL if written == "!=":
            value = "<>"
    return Token(kind, written, value, at)
