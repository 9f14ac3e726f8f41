"""An SDK sender as a link needs it: retries off, failures reported promptly, readiness known."""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certifi
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus.classify import condition_of
from pairbus.names import namespace_from_host, split_host
from pairbus.pairing.sdk.contract import (
    AMQP_TRANSPORT,
    AUTH_STATE,
    AUTHENTICATOR,
    CLOSE_HANDLER,
    CONFIG,
    EXPIRES_ON,
    GET_STATE,
    HANDLER,
    LINK,
    SSL_CONTEXT,
    STATE,
    is_async,
)

logger = logging.getLogger("pairbus.sdk")

# The SDK's error for a closed handler, word for word.
SHUT_DOWN = (
    "The handler has already been shutdown. Please use ServiceBusClient to create a new instance."
)


class ShutDownError(Exception):
    """The SDK sender was closed with its client, without our knowledge."""


class UnwantedError(Exception):
    """While the send waited for its turn, its destination changed."""


def check_transport(client: Any) -> None:
    """Refuse a client on the retired uAMQP transport.

    Raises:
        ValueError: if it is.
    """
    try:
        kind = AMQP_TRANSPORT.of(client).KIND
    except AttributeError:
        return
    if kind != "pyamqp":
        raise ValueError("A client with uamqp_transport=True cannot be paired.")


def batch_arguments(client: Any) -> dict[str, Any]:
    """The arguments that make a batch one of `client`'s own.

    The async SDK encodes a batch again if it was made for another transport.
    """
    try:
        return {"amqp_transport": AMQP_TRANSPORT.of(client)}
    except AttributeError:
        return {}


def disable_retries(sender: Any) -> KeepingOpen | None:
    """Let `sender` try each operation once; return the context for the calls of `sender`.

    The SDK opens links inside a send, on each retry, and its SASL and TLS handshakes read with no
    timeout (`socket_timeout=` does not reach them). pairbus retries itself, and opens links where
    they can be abandoned. Within the context, `sender` raises a failure without closing its
    connection first. None if the SDK's internals changed: then it retries by itself, or closes a
    failed connection before it raises.
    """
    try:
        CONFIG.of(sender).retry_total = 0
        return KeepingOpen(sender)
    except AttributeError:
        return None


class KeepingOpen:
    """Replaces `_close_handler` of an SDK sender during a call, for the caller only.

    Before it raises an error the SDK closes the connection, and waits for its keep-alive task,
    which sleeps for up to a second. A link closes it in the background instead. If another thread
    or task closes the sender meanwhile, such as an application that closes its client, the
    connection is closed as usual. `caller` is a task or a thread's id.
    """

    __slots__ = ("_close", "_current", "_is_async", "_sender", "caller")

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._close = CLOSE_HANDLER.of(sender)
        self._is_async = is_async(sender)
        self._current: Callable[[], object] = (
            asyncio.current_task if self._is_async else threading.get_ident
        )
        self.caller: object = None

    def __enter__(self) -> None:
        self.caller = self._current()
        setattr(self._sender, CLOSE_HANDLER.name, self.close_unless_called)

    def __exit__(self, *exc: object) -> None:
        delattr(self._sender, CLOSE_HANDLER.name)
        self.caller = None

    def close_unless_called(self) -> Any:
        """Close the connection, unless the caller of the sender wants it closed."""
        if self._current() != self.caller:
            return self._close()
        return _nothing() if self._is_async else None


async def _nothing() -> None:
    """Leave the connection open."""


def share_tls_context(owner: Any) -> None:
    """Let an SDK sender use a TLS context that was loaded before, unless it has its own.

    The SDK reads the bundle of certificate authorities for every link, which blocks for some 40 ms
    (in the async SDK without TLS too). For a client this loads the context, for its senders to
    find.
    """
    try:
        config = CONFIG.of(owner)
        if SSL_CONTEXT.of(config) is not None:
            return
        ca_file = config.connection_verify or certifi.where()
        context = _tls_context(ca_file, Path(ca_file).stat().st_mtime_ns)
        if hasattr(owner, "entity_name"):
            setattr(config, SSL_CONTEXT.name, context)
    except (AttributeError, OSError, TypeError, ValueError) as error:
        logger.debug("the SDK loads its own TLS context: %r", error)


@functools.lru_cache(maxsize=8)
def _tls_context(ca_file: str, changed_at: int) -> ssl.SSLContext:
    # As the SDK makes it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file)
    return context


def host_to_resolve(sender: Any) -> str | None:
    """The host name that `sender` looks up; None if it is an address, or not known."""
    try:
        config = CONFIG.of(sender)
        if config.http_proxy:
            host = str(config.http_proxy["proxy_hostname"])
        elif config.custom_endpoint_address:
            host = str(config.custom_endpoint_hostname)
        else:
            host = str(sender.fully_qualified_namespace)
        return split_host(host)[0] if namespace_from_host(host) is not None else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def retries_of(client: Any) -> tuple[int, float, float, bool]:
    """How often the application wants an operation retried: total, factor, maximum, fixed."""
    try:
        config = CONFIG.of(client)
    except AttributeError:
        config = None
    mode = getattr(config, "retry_mode", "exponential")
    return (
        int(getattr(config, "retry_total", 3)),
        float(getattr(config, "retry_backoff_factor", 0.8)),
        float(getattr(config, "retry_backoff_max", 120)),
        str(getattr(mode, "value", mode)).lower() == "fixed",
    )


def is_shut_down(error: BaseException) -> bool:
    """Whether the SDK refused a call because the sender, or its client, was closed."""
    return isinstance(error, ValueError) and "already been shutdown" in str(error)


class Readiness:
    """The state of an open sender, for a cheap check whether it is still the same.

    A send on a ready sender does nothing but send: its link is attached, and its token is valid for
    a while. Otherwise the SDK would first open a link or renew the token, which may take any time.
    """

    def __init__(self, sender: Any, before: Readiness | None = None) -> None:
        """Read the state of `sender`, which is open; `before` is the state that was read last.

        Raises:
            AttributeError, TypeError, ValueError: if it is not open, or the SDK has changed.
        """
        self.sender = sender
        self.handler = HANDLER.of(sender)
        self.link = LINK.of(self.handler)
        self.authenticator = AUTHENTICATOR.of(self.handler)
        self.attached = STATE.of(self.link)
        self.ok = AUTH_STATE.of(self.authenticator)
        if self.attached.name != "ATTACHED" or self.ok.name != "OK":
            raise AttributeError("not open")
        self.expires_on = float(EXPIRES_ON.of(self.authenticator))
        if (
            before is not None
            and before.authenticator is self.authenticator
            and before.expires_on == self.expires_on
        ):
            self.good_until: float = before.good_until
        else:
            # The SDK renews a token in the last tenth of its life, as seen when it was new.
            life = max(0.0, self.expires_on - time.time())
            self.good_until = self.expires_on - 0.1 * life - 60

    def holds(self) -> bool:
        """Whether the sender's state is unchanged, and its token is valid for a while."""
        return (
            HANDLER.of(self.sender) is self.handler
            and self.link.state is self.attached
            and self.authenticator.auth_state is self.ok
            and time.time() < self.good_until
        )


def readiness(sender: Any, before: Readiness | None = None) -> Readiness | None:
    """The state of `sender`, which is open; None if the SDK's internals changed."""
    try:
        return Readiness(sender, before)
    except (AttributeError, TypeError, ValueError):
        return None


# The SDK's public errors for the conditions with which the service detaches a link on purpose.
_DETACH_ERRORS: dict[str, type[ServiceBusError]] = {
    "com.microsoft:server-busy": ServiceBusServerBusyError,
    "amqp:resource-limit-exceeded": ServiceBusQuotaExceededError,
    "amqp:not-found": MessagingEntityNotFoundError,
    "com.microsoft:entity-disabled": MessagingEntityDisabledError,
    "amqp:unauthorized-access": ServiceBusAuthorizationError,
}


def detach_error(ready: Readiness, error: BaseException) -> ServiceBusError | None:
    """The error that a detached link gives; None if it gives none that says more than `error`.

    The SDK reports a send whose link was detached as an unknown error. The link has the condition.
    """
    if not isinstance(error, ServiceBusConnectionError):
        return None
    try:
        GET_STATE.of(ready.link)()
    except Exception as detached:  # noqa: BLE001  # whatever the SDK raises
        kind = _DETACH_ERRORS.get(condition_of(detached))
        return kind(message=str(detached), error=detached) if kind is not None else None
    return None
