"""XML of the administration API: a restricted parser, and functions that write elements.

The parser refuses document types, entities, deep trees and large numbers of elements before it
allocates anything for them: the known attacks on XML parsers need one of these. It compares names
without their namespace, because clients write prefixes in different ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import escape

from pairbus.broker.entities.errors import ArgumentError

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
ROOT = f' xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}"'
"""The attributes of a description."""

MAX_DEPTH = 24
MAX_ELEMENTS = 5000
MAX_BYTES = 512 * 1024

_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(slots=True)
class Element:
    """A parsed element: local names, and its own text without that of its children."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, name: str) -> Element | None:
        """The first child of that name."""
        return next((child for child in self.children if child.name == name), None)

    def find_value(self, name: str) -> Element | None:
        """The first child of that name, if it is not marked as having no value (``i:nil``)."""
        child = self.find(name)
        return None if child is None or child.is_nil else child

    def find_text(self, name: str) -> str | None:
        """The text of `find_value`."""
        child = self.find_value(name)
        return None if child is None else child.text

    def __iter__(self) -> Iterator[Element]:
        return iter(self.children)

    @property
    def is_nil(self) -> bool:
        """Whether the element is marked as having no value."""
        return self.attributes.get("nil") in ("true", "1")


class _RefusedError(Exception):
    """Raised inside the parser's callbacks."""


def parse_xml(body: bytes) -> Element:
    """The root element of a document; ArgumentError if it is malformed or not accepted."""
    if len(body) > MAX_BYTES:
        raise ArgumentError(f"The request body is larger than {MAX_BYTES} bytes.")
    stack = [Element("")]
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) > MAX_DEPTH or count > MAX_ELEMENTS:
            raise _RefusedError
        local = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        element = Element(name.rpartition(" ")[2], local)
        stack[-1].children.append(element)
        stack.append(element)

    def text(data: str) -> None:
        stack[-1].text += data

    def end(name: str) -> None:
        stack.pop()

    def refuse(*_: object) -> NoReturn:
        raise _RefusedError

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.ProcessingInstructionHandler = refuse
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError):
        raise ArgumentError("The request body is not well-formed XML.") from None
    except _RefusedError:
        raise ArgumentError("The request body has XML that is not accepted here.") from None
    return stack[0].children[0]


def content_of(body: bytes, *names: str) -> Element:
    """The description inside an Atom entry, one of those *names*, or ArgumentError."""
    root = parse_xml(body)
    content = root.find("content") if root.name == "entry" else None
    if content is not None:
        for child in content:
            if child.name in names:
                return child
    raise ArgumentError(f"The request body must be an Atom entry with a {' or '.join(names)}.")


# --- writing --------------------------------------------------------------------------------------


def tag(name: str, content: str, attributes: str = "") -> str:
    """An element around content that is XML."""
    return f"<{name}{attributes}>{content}</{name}>"


def leaf(name: str, value: str | int | datetime | None, attributes: str = "") -> str:
    """An element with the text of a value; nothing if there is no value."""
    match value:
        case None:
            return ""
        case bool():
            value = str(value).lower()
        case datetime():
            value = timestamp(value)
    return tag(name, quote(str(value)), attributes)


def quote(value: str) -> str:
    """Text escaped for an element or an attribute; a parser returns it unchanged."""
    value = _UNWRITABLE.sub("\ufffd", value)
    return escape(value, {'"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"})


def timestamp(moment: datetime) -> str:
    """A time as the service writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
