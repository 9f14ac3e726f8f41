"""Backlog queues: looked up first, created only where they are missing."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any

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
from pairbus.pairing._async.pair import Pair
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


async def provide_queues(admin: ServiceBusAdministrationClient, pair: Pair) -> None:
    """Find the backlog queues, and create those that are missing; let `pair` use them.

    With `recovery="drain_first"` the reply queue is provided, too. Each management call that the
    service answers, also with an error, is in the ledger.

    Raises:
        PairingError: if the credentials may not create queues, or no queue can be used.
    """
    found: list[str] = []
    limit = 0
    failure: Exception | None = None
    unreachable = 0
    for path in pair.rotation.paths:
        if unreachable >= 2 and not found:
            break  # two calls that timed out show that the namespace cannot be reached
        try:
            properties = await _provide(admin, pair, f"backlog queue {path!r}", path)
        except PairingError:
            raise
        except Exception as error:  # noqa: BLE001  # the others may work
            logger.info("backlog queue %s cannot be used: %s", path, describe(error))
            failure = error
            unreachable += isinstance(error, _UNREACHABLE)
            continue
        found.append(path)
        kilobytes = getattr(properties, "max_message_size_in_kilobytes", None)
        size = kilobytes * 1024 if kilobytes else BACKLOG_LIMIT
        limit = min(limit, size) if limit else size
    host = admin.fully_qualified_namespace
    if not found:
        raise PairingError(
            f"No backlog queue can be used in the secondary {host}. {describe(failure)}"
        ) from failure
    if pair.timing.drains_first:
        path = pair.replies.path
        try:
            await _provide(admin, pair, f"reply queue {path!r}", path, REPLY_QUEUE_PROPERTIES)
        except PairingError:
            raise
        except Exception as error:
            raise PairingError(
                f"The reply queue {path!r} cannot be created in {host}. {describe(error)}"
            ) from error
    pair.use_queues(tuple(found), limit)


async def _provide(
    admin: ServiceBusAdministrationClient,
    pair: Pair,
    what: str,
    path: str,
    wanted: dict[str, Any] = QUEUE_PROPERTIES,
) -> Any:
    """Find or create a queue: its properties, or None if they are unknown.

    Raises:
        PairingError: if the credentials may not do that.
    """
    try:
        try:
            return await _call(pair, admin.get_queue, path)
        except ResourceNotFoundError:
            return await _call(pair, partial(admin.create_queue, **wanted), path)
    except ResourceExistsError:
        return None  # another client has just created it
    except Exception as error:
        if _is_denied(error):
            raise PairingError(
                f"The secondary's credentials may not look up or create the {what} in "
                f"{admin.fully_qualified_namespace}: they need the right Manage. "
                f"{describe(error)}"
            ) from error
        raise


async def _call(pair: Pair, call: Any, path: str) -> Any:
    seconds = pair.timing.send_timeout
    try:
        result = await aabandonable(seconds, call, path, what=f"looking up {path}")
    except HttpResponseError:
        pair.accounts.provided()
        raise
    pair.accounts.provided()
    return result


def _is_denied(error: Exception) -> bool:
    if isinstance(error, ClientAuthenticationError):
        return True
    return isinstance(error, HttpResponseError) and error.status_code in (401, 403)
