"""Collect the facts about both namespaces, without changing anything.

Links are attached and closed again, which proves a right and costs no message. Properties come from
the administration, where the credentials allow it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

from pairbus.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    OperationTimeoutError,
)
from pairbus.drill.canary import is_canary
from pairbus.drill.facts import Entity, Facts, Kind, Problem, Properties, Side
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.monitoring.formatting import one_line
from pairbus.names import (
    AMQP_PORT,
    AMQPS_PORT,
    backlog_paths,
    parse_connection_string,
    split_host,
)

CONNECT_TIMEOUT = 10.0
CONDITIONS = {
    "amqp:not-found": Kind.MISSING,
    "amqp:unauthorized-access": Kind.RIGHT,
    "amqp:not-allowed": Kind.SESSIONS,
    "amqp:resource-limit-exceeded": Kind.FULL,
    "com.microsoft:entity-disabled": Kind.DISABLED,
    "com.microsoft:server-busy": Kind.BUSY,
}


def collect(pair: Pair, named: tuple[str, ...] = ()) -> Facts:
    """Return the facts about the pair.

    Args:
        pair: the pair.
        named: destinations that the drill will send to; if none is named, all are checked.
    """
    primary, entities = _inspect("primary", pair.require_primary())
    secondary, queues = _inspect("secondary", pair.require_secondary())
    paths = backlog_paths(pair.primary_namespace.lower(), pair.backlog_queue_count)
    known = {path.lower(): properties for path, properties in queues.items()}
    wanted = named or tuple(name for name in sorted(entities) if not is_canary(name))
    own = {name.lower(): properties for name, properties in entities.items()}
    return Facts(
        primary=primary,
        secondary=secondary,
        primary_namespace=pair.primary_namespace,
        backlog=()
        if secondary.reach
        else tuple(_attach(pair.require_secondary(), paths, known, listens=True)),
        destinations=tuple(
            _attach(pair.require_primary(), wanted, own, listens=False)
            if named and not primary.reach
            else (Entity(path=name, properties=own.get(name.lower())) for name in wanted)
        ),
        leftovers=tuple(sorted(name for name in entities if is_canary(name))),
    )


def address(endpoint: Endpoint) -> tuple[str, int]:
    """Return host and AMQP port of a namespace."""
    host, port = split_host(endpoint.host)
    return host, (port or AMQP_PORT) if endpoint.is_emulator else AMQPS_PORT


def _inspect(role: str, endpoint: Endpoint) -> tuple[Side, dict[str, Properties]]:
    host, port = address(endpoint)
    began = time.monotonic()
    reach = _connect(host, port)
    seconds = time.monotonic() - began
    facts: dict[str, Any] = {"role": role, "host": host, "port": port, "reach": reach}
    if reach is not None:
        if not endpoint.is_emulator and reach.kind is Kind.CONNECTION:
            facts["is_web_open"] = _connect(host, 443) is None
        return Side(**facts), {}
    facts |= {"seconds": seconds, "expired_at": _expiry(endpoint)}
    entities: dict[str, Properties] = {}
    try:
        with endpoint.admin(retry_total=1, connection_timeout=CONNECT_TIMEOUT) as admin:
            facts["name"] = admin.get_namespace_properties().name
            entities = _list(admin)
    except Exception as exc:  # noqa: BLE001 - any failure is a fact about the namespace
        facts["administration"] = http_problem(exc)
    return Side(**facts), entities


def _connect(host: str, port: int) -> Problem | None:
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT).close()
    except socket.gaierror as exc:
        return Problem(Kind.NAME, exc.strerror or str(exc))
    except OSError as exc:
        return Problem(Kind.CONNECTION, exc.strerror or one_line(exc))
    return None


def _expiry(endpoint: Endpoint) -> float | None:
    """When the endpoint's shared access signature expired; None if it did not."""
    if not endpoint.is_connection_string:
        return None
    with contextlib.suppress(ValueError):
        found = re.search(r"\bse=(\d+)", parse_connection_string(endpoint.value).signature or "")
        if found and int(found[1]) < time.time():
            return float(found[1])
    return None


def http_problem(exc: BaseException) -> Problem:
    """Classify an error of the administration."""
    status = getattr(exc, "status_code", None)
    text = one_line(exc)
    if type(exc).__name__ == "ClientAuthenticationError" or status == 401:
        lacks = re.search(r"claims?|not authorized|authorization failed", text, re.IGNORECASE)
        return Problem(Kind.RIGHT if lacks else Kind.KEY, text)
    kind = {403: Kind.RIGHT, 404: Kind.MISSING, 429: Kind.BUSY, 503: Kind.BUSY}.get(status or 0)
    if kind is None and type(exc).__name__ in ("ServiceRequestError", "ServiceResponseError"):
        kind = Kind.CONNECTION
    return Problem(kind or Kind.OTHER, text)


def link_problem(exc: ClientError) -> Problem:
    """Classify an error of the bulk client."""
    text = one_line(exc)
    if isinstance(exc, AuthenticationError):
        kinds = {403: Kind.RIGHT, 404: Kind.MISSING}
        return Problem(kinds.get(exc.status_code, Kind.KEY), text)
    kind = CONDITIONS.get(str(exc.condition))
    if kind is None and isinstance(exc, ConnectionLostError | OperationTimeoutError):
        kind = Kind.CONNECTION
    return Problem(kind or Kind.OTHER, text)


# -- entities


def _list(admin: Any) -> dict[str, Properties]:
    """Return the properties of all queues and topics."""
    counts = {queue.name: queue for queue in admin.list_queues_runtime_properties()}
    found = {q.name: _properties(q, counts.get(q.name)) for q in admin.list_queues()}
    return found | {t.name: _properties(t, None) for t in admin.list_topics()}


def _properties(entity: Any, counts: Any) -> Properties:
    def get(name: str, default: Any = None) -> Any:
        value = getattr(entity, name, None)
        return default if value is None else value

    kilobytes = get("max_message_size_in_kilobytes")
    megabytes = get("max_size_in_megabytes")
    return Properties(
        status=str(getattr(get("status"), "value", get("status", "Active"))),
        lock_duration=_span(get("lock_duration")),
        requires_session=bool(get("requires_session", False)),
        max_delivery_count=get("max_delivery_count"),
        time_to_live=_span(get("default_message_time_to_live")),
        auto_delete=_span(get("auto_delete_on_idle")),
        keeps_expired=bool(get("dead_lettering_on_message_expiration", True)),
        forward_to=get("forward_to"),
        duplicate_window=_span(get("duplicate_detection_history_time_window"))
        if get("requires_duplicate_detection", False)
        else None,
        message_limit=kilobytes * 1024 if kilobytes else None,
        capacity=megabytes * 1024 * 1024 if megabytes else None,
        size=getattr(counts, "size_in_bytes", None) or 0,
        messages=getattr(counts, "active_message_count", None) or 0,
        dead_letters=getattr(counts, "dead_letter_message_count", None) or 0,
    )


def _span(value: Any) -> Any:
    return value if hasattr(value, "total_seconds") else None


def _attach(
    endpoint: Endpoint,
    paths: tuple[str, ...] | list[str],
    known: dict[str, Properties],
    *,
    listens: bool,
) -> Iterator[Entity]:
    """Try a sender, and a receiver if `listens`, on each path over one connection."""
    with endpoint.bulk_connection() as connection:
        for path in paths:
            properties = known.get(path.lower())
            send = _try(lambda: connection.sender(path))  # noqa: B023 - called before the next
            listen = None
            if listens and (send is None or send.kind is Kind.RIGHT):
                listen = _try(lambda: connection.receiver(path))  # noqa: B023 - likewise
            is_named = not listens
            yield Entity(
                path=path, is_named=is_named, send=send, listen=listen, properties=properties
            )
            if send is not None and send.kind in (Kind.KEY, Kind.CONNECTION):
                return  # the same for all of them


def _try(attach: Any) -> Problem | None:
    try:
        attach().close()
    except ClientError as exc:
        return link_problem(exc)
    return None
