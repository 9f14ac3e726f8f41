# generated from src/pairbus/pairing/_async/backlog_queues.py by tools/gen_unasync.py; edit that one
"""Backlog queues: looked up first, created only where they are missing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.exceptions import PairingError, describe
from pairbus.pairing.outgoing import BACKLOG_LIMIT
from pairbus.pairing.runtime import AbandonedError, abandonable

logger = logging.getLogger("pairbus.backlog")

# The SDK tries each call again for some five seconds before it says so.
_UNREACHABLE = (TimeoutError, AbandonedError, ServiceRequestError, ServiceResponseError)
MAX_DURATION = "P10675199DT2H48M5.4775807S"  # the service's maximum
QUEUE_PROPERTIES: dict[str, Any] = {
    "max_size_in_megabytes": 5120,
    "max_delivery_count": 2147483647,
    "default_message_time_to_live": MAX_DURATION,
    "auto_delete_on_idle": MAX_DURATION,
    "lock_duration": timedelta(minutes=1),
    "dead_lettering_on_message_expiration": True,
    "enable_batched_operations": True,
}


class Provided(NamedTuple):
    """The backlog queues that exist, the largest message that all take, the calls it took."""

    queues: tuple[str, ...]
    message_limit: int
    calls: int


def provide_queues(
    admin: ServiceBusAdministrationClient, paths: Sequence[str], *, timeout: float
) -> Provided:
    """Find the backlog queues, and create those that are missing.

    Raises:
        PairingError: if the credentials may not create queues, or no queue can be used.
    """
    found: list[str] = []
    limit = 0
    calls = 0
    failure: Exception | None = None
    silent = 0
    for path in paths:
        if silent >= 2 and not found:
            break  # two calls that timed out show that the namespace cannot be reached
        try:
            calls += 1
            try:
                properties = _bounded(timeout, admin.get_queue, path)
            except ResourceNotFoundError:
                calls += 1
                try:
                    create = partial(admin.create_queue, **QUEUE_PROPERTIES)
                    properties = _bounded(timeout, create, path)
                except ResourceExistsError:
                    properties = None  # another client has just created it
        except Exception as error:
            if _is_denied(error):
                raise PairingError(
                    "The secondary's credentials may not look up or create the backlog queue "
                    f"{path!r} in {admin.fully_qualified_namespace}: they need the right Manage. "
                    f"{describe(error, '')}"
                ) from error
            logger.info("backlog queue %s cannot be used: %s", path, describe(error, ""))
            failure = error
            silent += isinstance(error, _UNREACHABLE)
            continue
        found.append(path)
        kilobytes = getattr(properties, "max_message_size_in_kilobytes", None)
        size = kilobytes * 1024 if kilobytes else BACKLOG_LIMIT
        limit = min(limit, size) if limit else size
    if not found:
        raise PairingError(
            f"No backlog queue can be used in the secondary {admin.fully_qualified_namespace}. "
            f"{describe(failure, '')}"
        ) from failure
    return Provided(tuple(found), limit, calls)


def _bounded(timeout: float, call: Any, path: str) -> Any:
    return abandonable(timeout, call, path, what=f"looking up {path}")


def _is_denied(error: Exception) -> bool:
    if isinstance(error, ClientAuthenticationError):
        return True
    return isinstance(error, HttpResponseError) and error.status_code in (401, 403)
