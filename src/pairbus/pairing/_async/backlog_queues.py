"""Backlog queues: looked up first, created only where they are missing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
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
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.exceptions import PairingError, describe
from pairbus.pairing.abandoning import AbandonedError, aabandonable
from pairbus.pairing.outgoing import BACKLOG_LIMIT

logger = logging.getLogger("pairbus.backlog")

# The SDK retries each call for about five seconds before it raises one of these.
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


# The queue where fences are answered: a session for each client. An answer expires by itself.
REPLY_QUEUE_PROPERTIES: dict[str, Any] = {
    "requires_session": True,
    "default_message_time_to_live": timedelta(days=1),
    "lock_duration": timedelta(minutes=5),
    "max_delivery_count": 2147483647,
}


class Provided(NamedTuple):
    """The usable backlog queues, and the message size that all of them accept."""

    queues: tuple[str, ...]
    message_limit: int


async def provide_queues(
    admin: ServiceBusAdministrationClient,
    paths: Sequence[str],
    *,
    timeout: float,
    on_answer: Callable[[], None],
    reply_queue: str | None = None,
) -> Provided:
    """Find the backlog queues, and create those that are missing; the reply queue too, if named.

    Calls `on_answer` for each management call that the service answered, also with an error.

    Raises:
        PairingError: if the credentials may not create queues, or no queue can be used.
    """
    found: list[str] = []
    limit = 0
    call = partial(_call, timeout, on_answer)
    failure: Exception | None = None
    unreachable = 0
    for path in paths:
        if unreachable >= 2 and not found:
            break  # two calls that timed out show that the namespace cannot be reached
        try:
            properties = await _provide(admin, path, QUEUE_PROPERTIES, call)
        except Exception as error:
            if _is_denied(error):
                raise _denied(admin, f"backlog queue {path!r}", error) from error
            logger.info("backlog queue %s cannot be used: %s", path, describe(error, ""))
            failure = error
            unreachable += isinstance(error, _UNREACHABLE)
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
    if reply_queue is not None:
        try:
            await _provide(admin, reply_queue, REPLY_QUEUE_PROPERTIES, call)
        except Exception as error:
            if _is_denied(error):
                raise _denied(admin, f"reply queue {reply_queue!r}", error) from error
            raise PairingError(
                f"The reply queue {reply_queue!r} cannot be created in "
                f"{admin.fully_qualified_namespace}. {describe(error, '')}"
            ) from error
    return Provided(tuple(found), limit)


async def _provide(
    admin: ServiceBusAdministrationClient,
    path: str,
    wanted: dict[str, Any],
    call: Callable[..., Awaitable[Any]],
) -> Any:
    """Find or create a queue: its properties, or None if they are unknown."""
    try:
        return await call(admin.get_queue, path)
    except ResourceNotFoundError:
        pass
    try:
        return await call(partial(admin.create_queue, **wanted), path)
    except ResourceExistsError:
        return None  # another client has just created it


def _denied(admin: ServiceBusAdministrationClient, what: str, error: Exception) -> PairingError:
    return PairingError(
        f"The secondary's credentials may not look up or create the {what} in "
        f"{admin.fully_qualified_namespace}: they need the right Manage. {describe(error, '')}"
    )


async def _call(timeout: float, on_answer: Callable[[], None], call: Any, path: str) -> Any:
    try:
        result = await aabandonable(timeout, call, path, what=f"looking up {path}")
    except HttpResponseError:
        on_answer()
        raise
    on_answer()
    return result


def _is_denied(error: Exception) -> bool:
    if isinstance(error, ClientAuthenticationError):
        return True
    return isinstance(error, HttpResponseError) and error.status_code in (401, 403)
