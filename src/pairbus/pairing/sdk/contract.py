"""The internals of azure-servicebus that pairbus uses: all of them, each with a fallback.

The public API of the SDK cannot bound how long a link takes to open, cut a connection whose peer is
silent, or show whether a send must first renew its token. For this pairbus reads private names. No
guarantee depends on them: if a name is missing, the code that needs it uses a slower way through
the public API, as `without` says. The names are probed when a client is paired and when
its first link is open; if any is missing, one warning names them all. The objects behind private
names are internals, too: the public names of them that pairbus uses are below the private ones.
(The settings in `_config` have the names of the client's public arguments, such as `retry_total`.)
"""

from __future__ import annotations

import inspect
import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

logger = logging.getLogger("pairbus.sdk")


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A private attribute of an SDK object, or an attribute of an object behind one.

    Args:
        name: The attribute.
        owner: The object that has it.
        purpose: What pairbus reads it for.
        without: What happens in a version of the SDK that does not have it.

    Attributes:
        of: Returns the attribute of an object; raises AttributeError if there is none.
    """

    name: str
    owner: str
    purpose: str
    without: str
    of: Callable[[Any], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", self._getter())

    def _getter(self) -> Callable[[Any], Any]:
        return operator.attrgetter(self.name)  # faster than a method: sends call it


class Position(PrivateName):
    """The position of a field in a private tuple of the SDK."""

    __slots__ = ()

    def _getter(self) -> Callable[[Any], Any]:
        def of(thing: Any) -> Any:
            try:
                return thing[int(self.name)]
            except (LookupError, TypeError) as error:
                raise AttributeError(self.name) from error

        return of


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
RAW_MESSAGE = PrivateName(
    "_raw_amqp_message",
    "message",
    "to see, on every send, whether a message can be sent as it is, without the SDK's properties",
    "these are asked, which takes a little longer",
)
PROPERTIES = PrivateName(
    "_properties", "message's raw_amqp_message", RAW_MESSAGE.purpose, RAW_MESSAGE.without
)
DATA_BODY = PrivateName(
    "_data_body", "message's raw_amqp_message", RAW_MESSAGE.purpose, RAW_MESSAGE.without
)

# Names of the objects behind private names.
SSL_CONTEXT = PrivateName(
    "ssl_context",
    "config",
    "to read the certificate authorities once for all links",
    "they are read for every link, which blocks for some 40 ms",
)
CLIENT_READY = PrivateName(
    "client_ready",
    "handler",
    "to read the peer's frames without a pause while a link opens",
    "a link opens half a second later",
)
CLIENT_READY_ASYNC = PrivateName(
    "client_ready_async", "handler (async)", CLIENT_READY.purpose, CLIENT_READY.without
)
SOCK = PrivateName("sock", "transport", CONNECTION.purpose, CONNECTION.without)
WRITER = PrivateName("writer", "transport (async)", CONNECTION.purpose, CONNECTION.without)
SESSION = PrivateName(
    "session", "transport (async, web socket)", CONNECTION.purpose, CONNECTION.without
)
STATE = PrivateName("state", "link", LINK.purpose, LINK.without)
GET_STATE = PrivateName(
    "get_state",
    "link",
    "to learn why the service detached a link",
    "such a send fails with the SDK's general error for a lost connection",
)
AUTH_STATE = PrivateName(
    "auth_state", "authenticator", AUTHENTICATOR.purpose, AUTHENTICATOR.without
)
BODY = Position("5", "batch's _message", MESSAGE.purpose, MESSAGE.without)

_warned: set[str] = set()


def is_async(sender: Any) -> bool:
    """Whether `sender` is one of the async SDK."""
    return inspect.iscoroutinefunction(sender.close)


def probe_new_sender(client: Any, sender: Any, batch: Any, message: Any) -> None:
    """Look for the names that exist before a connection does; warn of those that are missing.

    `sender` is None if the client cannot make one before its entity is known: the names of a sender
    are then looked for when the first link is open.
    """
    _warn(
        _missing(client, CONFIG),
        _missing(sender, CONFIG, SSL_CONTEXT),
        _missing(client, AMQP_TRANSPORT),
        _missing(sender, CREATE_HANDLER),
        _missing(sender, CLOSE_HANDLER),
        _missing(sender, HANDLER),
        _missing(batch, MESSAGES),
        _missing(batch, MESSAGE, BODY),
        _missing(message, RAW_MESSAGE),
        _missing(message.raw_amqp_message, PROPERTIES),
        _missing(message.raw_amqp_message, DATA_BODY),
    )


def probe_open_sender(sender: Any) -> None:
    """Look for the names that exist only on an open link; warn of those that are missing."""
    wire = (HANDLER, CONNECTION, TRANSPORT)
    ready, end = CLIENT_READY, SOCK
    if is_async(sender):
        ready = CLIENT_READY_ASYNC
        if _missing(sender, *wire, SESSION) is SESSION:  # no web socket
            end = WRITER
    _warn(
        _missing(sender, CREATE_HANDLER),
        _missing(sender, CLOSE_HANDLER),
        _missing(sender, *wire, end),
        _missing(sender, HANDLER, ready),
        _missing(sender, HANDLER, LINK, STATE),
        _missing(sender, HANDLER, LINK, GET_STATE),
        _missing(sender, HANDLER, AUTHENTICATOR, AUTH_STATE),
        _missing(sender, HANDLER, AUTHENTICATOR, EXPIRES_ON),
    )


def _missing(thing: Any, *names: PrivateName) -> PrivateName | None:
    """The first name that is missing on the way from `thing`; None if all are there."""
    for name in names:
        if thing is None:
            return None  # closed meanwhile
        try:
            thing = name.of(thing)
        except AttributeError:
            return name
    return None


def _warn(*missing: PrivateName | None) -> None:
    new = {name.name: name for name in missing if name is not None and name.name not in _warned}
    _warned.update(new)
    if new:
        logger.warning(
            "This version of azure-servicebus differs from those that pairbus was tested with. "
            "Sends work, but: %s",
            "; ".join(f"no {name.name} of a {name.owner}: {name.without}" for name in new.values()),
        )
