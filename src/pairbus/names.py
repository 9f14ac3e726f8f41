"""Names and formats that several packages share: hosts, connection strings, paths, sizes, files.

Everything here is a pure function of its arguments, except `write_atomically` and `sync_folder`.
Errors are one line and never contain a key or a signature.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
"""Content type of the empty messages that probe an entity which is failed over."""

BILLING_STEP: Final = 65536
"""Bytes that one billable operation carries: 96 KB are two operations."""


def billable(size: int) -> int:
    """Return how many operations one message of `size` bytes counts as: one for each 64 KB."""
    return 1 if size <= BILLING_STEP else -(-size // BILLING_STEP)


# -- hosts and namespaces -----------------------------------------------------------------------


def split_host(text: str) -> tuple[str, int | None]:
    """Split `host[:port]` into the host, in lower case and without brackets, and the port.

    Accepts a URL (`sb://host:port/`), a bare IPv6 address (`::1`) and one in brackets
    (`[::1]:5672`). The port is None where none is given.

    Raises:
        ValueError: there is no host, or the port is not a number from 1 to 65535.
    """
    authority = _authority(text)
    if authority.startswith("["):
        host, _, rest = authority[1:].partition("]")
        if rest and not rest.startswith(":"):
            raise ValueError("after an IPv6 address in brackets, only ':' and a port are allowed")
        port = rest[1:]
    elif authority.count(":") > 1:
        host, port = authority, ""
    else:
        host, _, port = authority.partition(":")
    host = host.rstrip(".").lower()
    if not host:
        raise ValueError("no host is given")
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"the port of {host} is not a number from 1 to 65535")
    return host, int(port)


def join_host(host: str, port: int | None = None) -> str:
    """Return `host:port`, with brackets around an IPv6 address; without a port only the host."""
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return shown if port is None else f"{shown}:{port}"


def _authority(text: str) -> str:
    """The `host[:port]` of a URL or of a bare host, as it is written."""
    rest = text.strip().partition("//")[2] if "//" in text else text.strip()
    return re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2].strip()


def namespace_from_host(host: str) -> str | None:
    """Return the name of the namespace at `host`: the first label of its host name.

    Returns None where the host names no namespace: an IP address or localhost.

    Raises:
        ValueError: there is no host, or its port is not a number.

    Example:
        >>> namespace_from_host("contoso.servicebus.windows.net")
        'contoso'
        >>> namespace_from_host("[::1]:5672") is None
        True
    """
    name, _ = split_host(host)
    if ":" in name or re.fullmatch(r"[\d.]+", name):  # an address, in any of its forms (127.1)
        return None
    label = name.partition(".")[0]
    return None if label == "localhost" else label


def namespace_or_host(host: str) -> str:
    """Return the name of the namespace at `host`; where it has none, the host as it is."""
    return namespace_from_host(host) or _authority(host)


# -- backlog queues -----------------------------------------------------------------------------

_BACKLOG_SEGMENT: Final = "x-servicebus-transfer"


def backlog_prefix(primary_namespace: str) -> str:
    """Return the common beginning of the paths of a primary's backlog queues."""
    return f"{primary_namespace}/{_BACKLOG_SEGMENT}/"


def backlog_path(primary_namespace: str, index: int) -> str:
    """Return the path of one backlog queue: `contoso/x-servicebus-transfer/0`."""
    return f"{primary_namespace}/{_BACKLOG_SEGMENT}/{index}"


def backlog_paths(primary_namespace: str, count: int) -> list[str]:
    """Return the paths of the backlog queues 0 to `count` - 1 of a primary namespace."""
    return [backlog_path(primary_namespace, index) for index in range(count)]


def reply_queue_path(primary_namespace: str) -> str:
    """Return the path of the queue in the secondary where fences are answered."""
    return f"{primary_namespace}/{_BACKLOG_SEGMENT}/replies"


def reply_queue_of(backlog_path: str) -> str:
    """Return the path of the reply queue that belongs to a backlog queue."""
    return f"{backlog_path.rpartition('/')[0]}/replies"


def parse_backlog_path(path: str) -> tuple[str, int] | None:
    """Return the primary namespace and the index of a backlog queue; None for another path.

    Paths are compared without regard to case, as the service does; a slash at either end is
    ignored.
    """
    match = re.fullmatch(rf"/*([^/]+)/{_BACKLOG_SEGMENT}/([0-9]+)/*", path, re.IGNORECASE)
    return (match[1], int(match[2])) if match else None


def backlog_label(path: str) -> str:
    """Return the index of a backlog queue as text; another path as it is."""
    backlog = parse_backlog_path(path)
    return str(backlog[1]) if backlog else path


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Q = TypeVar("_Q", bound=_Named)


def sort_backlog_queues(primary_namespace: str, queues: Iterable[_Q]) -> list[tuple[int, _Q]]:
    """Return the backlog queues of a primary among `queues`, in the order of their numbers."""
    found = []
    for queue in queues:
        parsed = parse_backlog_path(queue.name)
        if parsed is not None and parsed[0].lower() == primary_namespace.lower():
            found.append((parsed[1], queue))
    return sorted(found, key=lambda pair: pair[0])


def describe_entity(namespace: str, path: str) -> str:
    """Return a short name for display: "orders, contoso", "backlog 3 of contoso"."""
    backlog = parse_backlog_path(path)
    return f"backlog {backlog[1]} of {backlog[0]}" if backlog else f"{path}, {namespace}"


# -- connection strings -------------------------------------------------------------------------

_ENDPOINT: Final = re.compile(r"(?:^|;)\s*(?:endpoint|hostname)\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionString:
    """The parts of a connection string. Its repr shows neither the key nor the signature."""

    authority: str  # host and port as they are written
    host: str  # in lower case, without brackets
    port: int | None = None
    is_emulator: bool = False  # no TLS; the port counts
    entity_path: str | None = None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)

    @property
    def namespace(self) -> str | None:
        """The name of the namespace; None where the host is an address."""
        return namespace_from_host(self.host)

    def require_credential(self) -> None:
        """Check that there is a key with its name, or a signature.

        Raises:
            ValueError: there is none.
        """
        if self.signature is None and (self.key is None or self.key_name is None):
            raise ValueError(
                "connection string: SharedAccessKeyName and SharedAccessKey, or "
                "SharedAccessSignature, are missing"
            )


def is_connection_string(text: str) -> bool:
    """Return whether `text` is meant as a connection string: one of its parts is an Endpoint."""
    return _ENDPOINT.search(text) is not None


def parse_connection_string(text: str) -> ConnectionString:
    """Read a connection string as the SDK does.

    Keywords are read without regard to case and surrounding whitespace. Emulator mode is exactly
    `UseDevelopmentEmulator=true`, in lower case. A missing credential is no error here, because
    the host of an incomplete string can be shown; see `ConnectionString.require_credential`.

    Raises:
        ValueError: the text is malformed, or names no host; one line without any secret.
    """
    fields: dict[str, str] = {}
    for part in text.strip().rstrip(";").split(";"):
        name, separator, value = part.partition("=")
        if not separator:
            raise ValueError("connection string: a part has no '='")
        fields[name.strip().lower()] = value.strip()
    endpoint = fields.get("endpoint") or fields.get("hostname")
    if not endpoint:
        raise ValueError("connection string: Endpoint is missing")
    try:
        host, port = split_host(endpoint)
    except ValueError as exc:
        raise ValueError(f"connection string: Endpoint: {exc}") from None
    return ConnectionString(
        authority=_authority(endpoint),
        host=host,
        port=port,
        is_emulator=fields.get("usedevelopmentemulator") == "true",
        entity_path=fields.get("entitypath", "").strip("/") or None,
        key_name=fields.get("sharedaccesskeyname") or None,
        key=fields.get("sharedaccesskey") or None,
        signature=fields.get("sharedaccesssignature") or None,
    )


def format_connection_string(
    authority: str,
    *,
    key_name: str | None = None,
    key: str | None = None,
    signature: str | None = None,
    is_emulator: bool = False,
) -> str:
    """Return a connection string for `host[:port]` with a named key or a signature."""
    parts = [f"Endpoint=sb://{authority}/"]
    if signature is not None:
        parts.append(f"SharedAccessSignature={signature}")
    else:
        parts += [f"SharedAccessKeyName={key_name}", f"SharedAccessKey={key}"]
    if is_emulator:
        # The emulator's own connection strings have no trailing slash.
        parts[0] = parts[0].rstrip("/")
        parts.append("UseDevelopmentEmulator=true")
    return ";".join(parts)


def replace_endpoint(text: str, authority: str) -> str:
    """Return the connection string `text` with another `host[:port]`, otherwise unchanged."""
    return ";".join(
        f"{part.partition('=')[0]}=sb://{authority}" if _ENDPOINT.match(part) else part
        for part in text.split(";")
    )


# -- files --------------------------------------------------------------------------------------

_writes = itertools.count()


def write_atomically(
    path: str | os.PathLike[str],
    data: bytes | memoryview | str,
    *,
    mode: int = 0o666,
    sync: bool = False,
) -> None:
    """Replace a file with `data`: a reader finds the old content or the new, never a part of it.

    Args:
        path: The file; its folder must exist.
        data: Its content; text is written as UTF-8.
        mode: Its permissions, before the umask.
        sync: Whether file and folder are on disk when the call returns.

    Raises:
        OSError: the file cannot be written; the old content is unchanged and no partial file left.
    """
    final = Path(path)
    # In the same folder, because a rename is atomic only within one file system; with a name that
    # readers of a ledger skip.
    temporary = final.with_name(f"_{final.name}.{os.getpid()}-{next(_writes)}.tmp")
    temporary.unlink(missing_ok=True)  # left by a killed process that had the same id
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else memoryview(data))
            if sync:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(final)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(final.parent)


def sync_folder(path: Path) -> None:
    """Write a folder's entries to disk, so that a file made or renamed in it survives a crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
