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

MISSING = (AttributeError, LookupError, TypeError)


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A private attribute of an SDK object, or an attribute of an object behind one.

    Args:
        name: The attribute; a number is a position in a private tuple.
        owner: The object that has it.
        without: What happens in a version of the SDK that does not have it.

    Attributes:
        of: Returns the attribute of an object; raises one of `MISSING` if there is none.
    """

    name: str
    owner: str
    without: str
    of: Callable[[Any], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # No methods, which are slower: sends call them.
        is_position = self.name.isdigit()
        of = operator.itemgetter(int(self.name)) if is_position else operator.attrgetter(self.name)
        object.__setattr__(self, "of", of)


# The application's retry settings; a sender below a paired one retries nothing itself.
CONFIG = PrivateName(
    "_config",
    "client and sender",
    "the SDK retries within the deadline, with the SDK's default settings",
)
# To refuse the retired uAMQP transport, and to build batches that the async SDK sends as is.
AMQP_TRANSPORT = PrivateName(
    "_amqp_transport", "client", "the async SDK encodes a batch once more when it is sent"
)
# To close a connection that the SDK drops when the peer hangs up during the handshake.
CREATE_HANDLER = PrivateName(
    "_create_handler",
    "sender",
    "a connection that the SDK drops is closed by the garbage collector",
)
# To close a connection that failed in the background.
CLOSE_HANDLER = PrivateName(
    "_close_handler",
    "sender",
    "a send that failed raises, or goes to the backlog, up to a second later",
)
# To reach the connection and the link.
HANDLER = PrivateName(
    "_handler",
    "sender",
    "every send runs on a thread or task of its own, and connections are not cut",
)
# To cut a connection whose peer is silent.
CONNECTION = PrivateName(
    "_connection", "handler", "an abandoned thread stays until the peer answers or closes"
)
TRANSPORT = PrivateName("_transport", "connection", CONNECTION.without)
# To see whether a link is attached, so that a send does nothing but send.
LINK = PrivateName("_link", "handler", "every send runs on a thread or task of its own")
# To see whether a send must first renew its token, which may take any time.
AUTHENTICATOR = PrivateName("_cbs_authenticator", "handler", LINK.without)
EXPIRES_ON = PrivateName("_expires_on", "authenticator", LINK.without)
# To redirect a batch that an SDK sender made.
MESSAGES = PrivateName(
    "_messages",
    "batch",
    "a batch of an SDK sender is sent to the primary only; while failed over it raises an error",
)
# To redirect a batch as it was encoded, even if its objects have changed since.
MESSAGE = PrivateName(
    "_message", "batch", "a batch is redirected by its objects, which are encoded once more"
)
# To see, on every send, whether a message can be sent as it is, without the SDK's properties.
RAW_MESSAGE = PrivateName(
    "_raw_amqp_message", "message", "the SDK's properties are asked, which takes a little longer"
)
PROPERTIES = PrivateName("_properties", "message's raw_amqp_message", RAW_MESSAGE.without)
DATA_BODY = PrivateName("_data_body", "message's raw_amqp_message", RAW_MESSAGE.without)

# Names of the objects behind private names.
# To read the certificate authorities once for all links.
SSL_CONTEXT = PrivateName(
    "ssl_context",
    "config",
    "certificate authorities are read for every link, which blocks for some 40 ms",
)
# To read the peer's frames without a pause while a link opens.
CLIENT_READY = PrivateName("client_ready", "handler", "a link opens half a second later")
CLIENT_READY_ASYNC = PrivateName("client_ready_async", "handler (async)", CLIENT_READY.without)
# To cut a connection.
SOCK = PrivateName("sock", "transport", CONNECTION.without)
WRITER = PrivateName("writer", "transport (async)", CONNECTION.without)
SESSION = PrivateName("session", "transport (async, web socket)", CONNECTION.without)
# To see whether a link is attached, and why the service detached it.
STATE = PrivateName("state", "link", LINK.without)
GET_STATE = PrivateName(
    "get_state",
    "link",
    "a send over a detached link fails with the SDK's general error for a lost connection",
)
AUTH_STATE = PrivateName("auth_state", "authenticator", LINK.without)
BODY = PrivateName("5", "batch's _message", MESSAGE.without)

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
        except MISSING:
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
