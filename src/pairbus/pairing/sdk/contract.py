"""The private names of azure-servicebus that pairbus reads: all of them, each with a fallback.

The public API of the SDK cannot bound how long a link takes to open, cut a connection whose peer is
silent, or show whether a send must first renew its token. For these pairbus reads private names. No
guarantee depends on them: if a name is missing, the code that needs it uses a slower way through
the public API, as `without` says. The names are probed when a client is paired and when
its first link is open; if any is missing, one warning names them all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("pairbus.sdk")

__all__ = ["NAMES", "PrivateName", "probe_new_sender", "probe_open_sender"]


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A private attribute of an SDK object.

    Args:
        name: The attribute.
        owner: The object that has it.
        purpose: What pairbus reads it for.
        without: What happens in a version of the SDK that does not have it.
    """

    name: str
    owner: str
    purpose: str
    without: str

    def of(self, thing: Any) -> Any:
        """The attribute of `thing`.

        Raises:
            AttributeError: if it has none.
        """
        return getattr(thing, self.name)


CONFIG = PrivateName(
    "_config",
    "client and sender",
    "the application's retry settings; a sender below a paired one retries nothing itself",
    "the SDK retries within the deadline, with the SDK's default settings",
)
AMQP_TRANSPORT = PrivateName(
    "_amqp_transport",
    "client",
    "to refuse the retired uAMQP transport, and to build batches that the async SDK sends as is",
    "the async SDK encodes a batch once more when it is sent",
)
CREATE_HANDLER = PrivateName(
    "_create_handler",
    "sender",
    "to close a connection that the SDK drops when the peer hangs up during the handshake",
    "such a connection is closed by the garbage collector",
)
CLOSE_HANDLER = PrivateName(
    "_close_handler",
    "sender",
    "to close a connection that failed in the background",
    "a send that failed raises, or goes to the backlog, up to a second later",
)
HANDLER = PrivateName(
    "_handler",
    "sender",
    "to reach the connection and the link",
    "every send runs on a thread or task of its own, and connections are not cut",
)
CONNECTION = PrivateName(
    "_connection",
    "handler",
    "to cut a connection whose peer is silent",
    "an abandoned thread stays until the peer answers or closes",
)
TRANSPORT = PrivateName("_transport", "connection", CONNECTION.purpose, CONNECTION.without)
LINK = PrivateName(
    "_link",
    "handler",
    "to see whether a link is attached, so that a send does nothing but send",
    "every send runs on a thread or task of its own",
)
AUTHENTICATOR = PrivateName(
    "_cbs_authenticator",
    "handler",
    "to see whether a send must first renew its token, which may take any time",
    LINK.without,
)
EXPIRES_ON = PrivateName(
    "_expires_on", "authenticator", AUTHENTICATOR.purpose, AUTHENTICATOR.without
)
MESSAGES = PrivateName(
    "_messages",
    "batch",
    "to redirect a batch that an SDK sender made",
    "such a batch is sent to the primary only; while failed over it raises an error that says so",
)
MESSAGE = PrivateName(
    "_message",
    "batch",
    "to redirect a batch as it was encoded, even if its objects have changed since",
    "a batch is redirected by its objects, which are encoded once more",
)
SIZE = PrivateName("_size", "batch", MESSAGE.purpose, MESSAGE.without)
COUNT = PrivateName("_count", "batch", MESSAGE.purpose, MESSAGE.without)
NAMES = (
    CONFIG,
    AMQP_TRANSPORT,
    CREATE_HANDLER,
    CLOSE_HANDLER,
    HANDLER,
    CONNECTION,
    TRANSPORT,
    LINK,
    AUTHENTICATOR,
    EXPIRES_ON,
    MESSAGES,
    MESSAGE,
    SIZE,
    COUNT,
)

_warned: set[str] = set()


def probe_new_sender(client: Any, sender: Any, batch: Any) -> None:
    """Look for the names that exist before a connection does; warn of those that are missing."""
    _warn(
        _missing(
            (CONFIG, lambda: CONFIG.of(client) and CONFIG.of(sender)),
            (AMQP_TRANSPORT, lambda: AMQP_TRANSPORT.of(client)),
            (CREATE_HANDLER, lambda: CREATE_HANDLER.of(sender)),
            (CLOSE_HANDLER, lambda: CLOSE_HANDLER.of(sender)),
            (HANDLER, lambda: HANDLER.of(sender)),
            (MESSAGES, lambda: MESSAGES.of(batch)),
            (MESSAGE, lambda: MESSAGE.of(batch)),
            (SIZE, lambda: SIZE.of(batch)),
            (COUNT, lambda: COUNT.of(batch)),
        )
    )


def probe_open_sender(sender: Any) -> None:
    """Look for the names that exist only on an open link; warn of those that are missing."""
    if HANDLER.name in _warned:
        return  # nothing below it can be reached
    _warn(
        _missing(
            (CONNECTION, lambda: CONNECTION.of(HANDLER.of(sender))),
            (TRANSPORT, lambda: TRANSPORT.of(CONNECTION.of(HANDLER.of(sender)))),
            (LINK, lambda: LINK.of(HANDLER.of(sender)).state),
            (AUTHENTICATOR, lambda: AUTHENTICATOR.of(HANDLER.of(sender)).auth_state),
            (EXPIRES_ON, lambda: EXPIRES_ON.of(AUTHENTICATOR.of(HANDLER.of(sender)))),
        )
    )


def _missing(*probes: tuple[PrivateName, Callable[[], Any]]) -> list[PrivateName]:
    found = []
    for name, read in probes:
        try:
            read()
        except AttributeError as error:
            is_closed = error.name is not None and error.obj is None  # an attribute of None
            if not is_closed:
                found.append(name)
    return found


def _warn(missing: Iterable[PrivateName]) -> None:
    new = [name for name in missing if name.name not in _warned]
    _warned.update(name.name for name in new)
    if new:
        logger.warning(
            "This version of azure-servicebus differs from those that pairbus was tested with. "
            "Sends work, but: %s",
            "; ".join(f"no {name.name} of a {name.owner}: {name.without}" for name in new),
        )
