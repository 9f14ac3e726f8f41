"""The tokens of the SQL filter language, each with its position."""

from __future__ import annotations

import enum
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
_SYMBOLS = ("<>", "!=", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";")
_CLOSING = {"'": "'", '"': '"', "[": "]"}


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
        if text[at].isspace():
            at += 1
            continue
        token = _token(text, at)
        tokens.append(token)
        at += len(token.text)
    tokens.append(Token(Kind.END, "", "", len(text)))
    return tokens


def _token(text: str, at: int) -> Token:
    first = text[at]
    if first in _CLOSING:
        return _delimited(text, at)
    if first.isdecimal() or (first == "." and text[at + 1 : at + 2].isdecimal()):
        return _number(text, at)
    if first.isalpha():
        word = _word(text, at)
        if word.upper() in KEYWORDS:
            return Token(Kind.KEYWORD, word, word.upper(), at)
        return Token(Kind.NAME, word, word, at)
    if first == "@":
        word = "@" + _word(text, at + 1)
        if word == "@":
            syntax_error(text, "@", at, "A parameter needs a name.")
        return Token(Kind.PARAMETER, word, word, at)
    for symbol in _SYMBOLS:
        if text.startswith(symbol, at):
            return Token(Kind.SYMBOL, symbol, "<>" if symbol == "!=" else symbol, at)
    return syntax_error(text, first, at, "This character has no meaning here.")


def _word(text: str, at: int) -> str:
    end = at
    while end < len(text) and (text[end] == "_" or text[end].isalpha() or text[end].isdecimal()):
        end += 1
    return text[at:end]


def _delimited(text: str, at: int) -> Token:
    """A string or a delimited name; a doubled closing character stands for itself."""
    closing = _CLOSING[text[at]]
    end = at + 1
    while True:
        end = text.find(closing, end)
        if end < 0:
            what = "string" if closing == "'" else "name"
            syntax_error(text, text[at:], at, f"The {what} is not closed.")
        if text[end + 1 : end + 2] != closing:
            break
        end += 2
    value = text[at + 1 : end].replace(closing * 2, closing)
    kind = Kind.STRING if closing == "'" else Kind.NAME
    if kind is Kind.NAME and not value:
        syntax_error(text, text[at : end + 1], at, "A name cannot be empty.")
    return Token(kind, text[at : end + 1], value, at)


def _number(text: str, at: int) -> Token:
    end = _digits(text, at)
    is_float = False
    if text[end : end + 1] == ".":
        is_float = True
        end = _digits(text, end + 1)
    if text[end : end + 1] in ("e", "E"):
        exponent = end + 1
        if text[exponent : exponent + 1] in ("+", "-"):
            exponent += 1
        if _digits(text, exponent) > exponent:
            is_float = True
            end = _digits(text, exponent)
    written = text[at:end]
    if _word(text, end):
        syntax_error(text, written + _word(text, end), at, "This is neither a number nor a name.")
    if is_float:
        return Token(Kind.NUMBER, written, float(written), at)
    value = int(written)
    if value > 1 << 63:  # 2**63 itself is valid after a minus
        syntax_error(text, written, at, "The number does not fit into 64 bits.")
    return Token(Kind.NUMBER, written, value, at)


def _digits(text: str, at: int) -> int:
    while at < len(text) and text[at].isdecimal():
        at += 1
    return at
