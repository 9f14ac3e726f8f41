"""Refuses requests of web pages from other origins.

A browser lets any web page send requests and open a WebSocket to any address, including a broker on
the developer's own machine, which accepts a well-known key. The page cannot hide its `Origin`, so
requests with a foreign origin are refused. Clients that are not browsers send no origin, or the
address that they connect to.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Collection
from urllib.parse import urlsplit

from pairbus.broker.server.http import Request, Response

_log = logging.getLogger("pairbus.broker")
_OWN_NAMES = (".localhost", ".servicebus.windows.net")


def refuse_origin(request: Request, allowed: Collection[str]) -> Response | None:
    """The response that refuses a web page which may not use the broker; None if it may."""
    if is_origin_allowed(request, allowed):
        return None
    origin = request.headers["origin"]
    _log.warning("a web page of %.200r may not connect (allowed_origins)", origin)
    return Response(403, b"this origin is not allowed (allowed_origins of the broker)")


def is_origin_allowed(request: Request, allowed: Collection[str]) -> bool:
    """Whether the request has no origin, an allowed one, or the broker's own.

    The broker's own origin is the address that the client connected to. It is accepted only if
    nobody else can own that name: a page of evil.example, whose name resolves to this machine,
    would also have the same origin and host (DNS rebinding).
    """
    origin = request.headers.get("origin")
    if origin is None or "*" in allowed or origin in allowed:
        return True
    try:
        parts = urlsplit(origin)
        name = parts.hostname or ""
    except ValueError:
        return False
    if parts.netloc.lower() != request.headers.get("host", "").lower():
        return False
    return "." not in name or _is_address(name) or name.endswith(_OWN_NAMES)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
