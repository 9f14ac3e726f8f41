"""Responses of the administration API: Atom entries and feeds, and error documents."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pairbus.broker.admin.atom import leaf, quote, tag, timestamp
from pairbus.broker.admin.entity_xml import write_description
from pairbus.broker.admin.requests import Call
from pairbus.broker.admin.rule_xml import write_rule
from pairbus.broker.entities.errors import BrokerError
from pairbus.broker.entities.model import EntityDescription, RuleDescription
from pairbus.broker.entities.model_json import Description, dump_description
from pairbus.broker.server.http import Response

if TYPE_CHECKING:
    from pairbus.broker.namespace.administration import Administration

_ATOM = ' xmlns="http://www.w3.org/2005/Atom"'
_XML = "application/atom+xml;type=entry;charset=utf-8"
_FEED = "application/atom+xml;type=feed;charset=utf-8"
_ERROR = "application/xml;charset=utf-8"
_WITH_SUB_CODE = {400, 403, 404, 409, 412}


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of an Atom entry about one entity."""

    href: str
    title: str
    published: datetime
    updated: datetime
    content: str
    etag: str = ""


class Answers:
    """Builds responses about the entities of one namespace."""

    def __init__(
        self, namespace: Administration, now: Callable[[], float], created: datetime
    ) -> None:
        self._namespace = namespace
        self._now = now
        self._created = created

    def describe(self, call: Call, found: EntityDescription) -> Entry:
        """An entity as an entry."""
        runtime = self._namespace.runtime(found.path)
        content = write_description(found, runtime, call.address, call.api_version)
        times = runtime.created_at_utc, runtime.updated_at_utc
        return Entry(call.href(found.path), found.name, *times, content, etag_of(found))

    def describe_rule(self, call: Call, rule: RuleDescription) -> Entry:
        """A rule as an entry."""
        created = rule.created_at_utc or self._created
        href = call.href(f"{call.target.path}/Rules/{rule.name}")
        return Entry(href, rule.name, created, created, write_rule(rule), etag_of(rule))

    def entry(self, status: int, entry: Entry) -> Response:
        """A response with one entry."""
        headers = {"content-type": _XML}
        if entry.etag:
            headers["etag"] = entry.etag
        return Response(status, self._entry(entry, _ATOM).encode(), headers)

    def feed(
        self,
        call: Call,
        path: str,
        title: str,
        entries: Sequence[Entry],
        next_href: str | None = None,
    ) -> Response:
        """A response with any number of entries; *next_href* is the address of the next page."""
        body = tag(
            "feed",
            leaf("title", title, ' type="text"')
            + leaf("id", call.href(path))
            + leaf("updated", datetime.fromtimestamp(self._now(), UTC))
            + _link("self", call.href(path))
            + ("" if next_href is None else _link("next", next_href))
            + "".join(self._entry(entry) for entry in entries),
            _ATOM,
        )
        return Response(200, body.encode(), {"content-type": _FEED})

    def _entry(self, entry: Entry, attributes: str = "") -> str:
        return tag(
            "entry",
            leaf("id", entry.href)
            + leaf("title", entry.title, ' type="text"')
            + leaf("published", entry.published)
            + leaf("updated", entry.updated)
            + tag("author", leaf("name", self._namespace.name))
            + _link("self", entry.href)
            + tag("content", entry.content, ' type="application/xml"'),
            attributes,
        )

    def refusal(self, error: BrokerError, where: str) -> Response:
        """The response to a request that was refused."""
        status = error.http_status
        prefix = ""
        if status in _WITH_SUB_CODE:
            prefix = f"SubCode={status}00. {HTTPStatus(status).phrase}. "
        when = timestamp(datetime.fromtimestamp(self._now(), UTC))
        detail = (
            f"{prefix}{error.description} TrackingId:{uuid.uuid4()}, "
            f"SystemTracker:{self._namespace.name}:{unquote(where).strip('/')[:300]}, "
            f"Timestamp:{when}"
        )
        body = tag("Error", leaf("Code", status) + leaf("Detail", detail))
        return Response(status, body.encode(), {"content-type": _ERROR})


def _link(relation: str, href: str) -> str:
    return f'<link rel="{relation}" href="{quote(href)}"/>'


def etag_of(description: Description) -> str:
    """The ETag of a description: a hash, so that it reveals no keys."""
    digest = hashlib.sha256(dump_description(description).encode()).hexdigest()
    return f'"{digest[:32]}"'
