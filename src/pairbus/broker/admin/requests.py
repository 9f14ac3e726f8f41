"""Parsed requests of administration clients: target, query and API version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote

from pairbus.broker.entities.errors import ArgumentError, EntityNotFoundError
from pairbus.broker.entities.model import subscription_path
from pairbus.broker.server.http import Request

API_VERSIONS = ("2017-04", "2021-05", "2024-05")


@dataclass(frozen=True, slots=True)
class Target:
    """The resource that a request names, by the parts of its path."""

    kind: str
    entity: str = ""
    subscription: str = ""
    rule: str = ""

    @property
    def path(self) -> str:
        """The path of the entity that needs a Manage claim; empty for the namespace."""
        if self.subscription:
            return subscription_path(self.entity, self.subscription)
        return self.entity

    @property
    def resource(self) -> str:
        """The path of the request's own URL, which some clients sign instead of the entity's."""
        match self.kind:
            case "queues" | "topics":
                return f"$Resources/{self.kind}"
            case "namespace":
                return "$namespaceinfo"
            case "subscriptions":
                return f"{self.entity}/Subscriptions"
            case "rules":
                return f"{self.path}/Rules"
            case "rule":
                return f"{self.path}/Rules/{self.rule}"
        return self.path


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request."""

    request: Request
    target: Target
    query: Mapping[str, str]
    host: str
    api_version: str

    @property
    def is_update(self) -> bool:
        """Whether a PUT changes an entity that exists, instead of creating one."""
        return "if-match" in self.request.headers

    def href(self, path: str) -> str:
        """The address of a resource; ``$`` is not escaped, because clients parse names from it."""
        return f"https://{self.host}/{quote(path, safe='/$')}?api-version={self.api_version}"

    def number(self, name: str, default: int) -> int:
        """A number in the query, such as ``$skip``."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not text.isdecimal() or len(text) > 9:
            raise ArgumentError(f"{name} must be a number that is not negative.")
        return int(text)

    def address(self, path: str) -> str:
        """The address of an entity in the form that forwarding uses."""
        return f"sb://{self.host}/{path}"


def read_call(request: Request, default_host: str) -> Call:
    """Parse a request; ArgumentError if it is malformed."""
    raw_path, _, raw_query = request.target.partition("?")
    try:
        parsed = parse_qs(raw_query, keep_blank_values=True, max_num_fields=20)
        target = parse_target(raw_path)
    except ValueError:
        raise ArgumentError("The address of the request cannot be read.") from None
    query = {name.lower(): values[-1] for name, values in parsed.items()}
    version = query.get("api-version", API_VERSIONS[-1])
    if version not in API_VERSIONS:
        raise ArgumentError(
            f"The api-version '{version[:32]}' is not supported; use one of "
            f"{', '.join(API_VERSIONS)}."
        )
    return Call(request, target, query, request.headers.get("host", "") or default_host, version)


def parse_target(raw_path: str) -> Target:
    """The resource of a path. Some clients escape the slashes within names, others do not."""
    segments = [unquote(part, errors="strict") for part in raw_path.strip("/").split("/")]
    lower = [part.lower() for part in segments]
    if lower[0] == "$resources" and len(lower) == 2 and lower[1] in ("queues", "topics"):
        return Target(lower[1])
    if lower == ["$namespaceinfo"]:
        return Target("namespace")
    if "subscriptions" in lower[1:]:
        at = lower.index("subscriptions", 1)
        topic, rest = "/".join(segments[:at]), segments[at + 1 :]
        match rest:
            case []:
                return Target("subscriptions", topic)
            case [name]:
                return Target("subscription", topic, name)
            case [name, word] if word.lower() == "rules":
                return Target("rules", topic, name)
            case [name, word, rule] if word.lower() == "rules":
                return Target("rule", topic, name, rule)
        raise EntityNotFoundError("There is no such resource.")
    path = "/".join(segments)
    if not path or path.startswith("$"):
        raise EntityNotFoundError("There is no such resource.")
    return Target("entity", path)
