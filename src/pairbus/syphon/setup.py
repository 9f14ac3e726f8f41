"""The namespaces, queues and directories of a syphon, derived from its options.

Errors that can be found before Spark starts are reported here, in one line each.
"""

import getpass
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pairbus.exceptions import SyphonError
from pairbus.ledger.store import shown
from pairbus.names import (
    backlog_paths,
    is_connection_string,
    namespace_from_host,
    namespace_or_host,
    parse_backlog_path,
    parse_connection_string,
)
from pairbus.options import SyphonOptions
from pairbus.syphon.object_files import is_url
from pairbus.syphon.target import Target

__all__ = ["Bounds", "Setup", "SetupError", "default_checkpoint"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SetupError(SyphonError, ValueError):
    """An option of the syphon is wrong; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """When a drain ends by itself.

    Args:
        until_empty: when the backlog queues are empty.
        max_messages: when this many messages were read.
        snapshot: when the messages that were there at the start were forwarded.
        max_duration: after this many seconds.
    """

    until_empty: bool = False
    max_messages: int | None = None
    snapshot: bool = False
    max_duration: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether it ends by itself."""
        return bool(
            self.until_empty or self.max_messages or self.snapshot or self.max_duration is not None
        )


@dataclass(frozen=True)
class Setup:
    """The namespaces, queues and directories of one syphon, and the options that it came from."""

    options: SyphonOptions
    primary: Target
    secondary: Target
    primary_host: str
    secondary_host: str
    queues: tuple[str, ...]
    checkpoint: Path
    state: str
    ledger: str | None
    client_id: str
    target: Target
    target_host: str
    ready: tuple[str, ...] = ()  # queues that had messages when they were counted

    @classmethod
    def of(cls, options: SyphonOptions) -> "Setup":
        """Derive the setup from options.

        Raises:
            SyphonError: what is missing or wrong, in one line.
        """
        primary, primary_host = (
            _endpoint("primary", options.primary, options.primary_host)
            if options.primary
            else (Target(), options.primary_namespace or "")  # lost: it is not connected to
        )
        secondary, secondary_host = _endpoint(
            "secondary", options.secondary, options.secondary_host
        )
        target, target_host = (
            (primary, primary_host)
            if options.target is None
            else _endpoint("target", options.target, options.target_host)
        )
        if options.ca_file:
            trusted = str(Path(options.ca_file).expanduser().absolute())
            if not Path(trusted).is_file():
                raise SetupError(f"ca_file: there is no file {trusted}")
            primary, secondary, target = (
                replace(t, ca_file=trusted) for t in (primary, secondary, target)
            )
        if primary_host.lower() == secondary_host.lower():
            raise SetupError(f"primary and secondary are the same namespace: {primary_host}")
        name = options.primary_namespace or namespace_from_host(primary_host)
        if name is None:
            raise SetupError(
                f"the primary's host {primary_host} is an address: name it with primary_namespace"
            )
        queues = tuple(backlog_paths(name, options.backlog_queue_count))
        for old, new in options.destination_map.items():
            if parse_backlog_path(new) is not None:
                raise SetupError(
                    f"destination_map: {old}={new}: {new} is a backlog queue, name another entity"
                )
        place = options.checkpoint or default_checkpoint(name, secondary_host)
        checkpoint = Path(place).expanduser().absolute()
        try:
            checkpoint.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            raise SyphonError(f"checkpoint {checkpoint}: {exc.strerror}") from None
        state = options.state or str(checkpoint)
        if not is_url(state):
            state = str(Path(state.removeprefix("file://")).expanduser().absolute())
        return cls(
            options=options,
            primary=primary,
            secondary=secondary,
            primary_host=primary_host,
            secondary_host=secondary_host,
            queues=queues,
            checkpoint=checkpoint,
            state=state,
            ledger=str(Path(options.ledger).expanduser().absolute())
            if options.ledger and "://" not in options.ledger
            else options.ledger,
            client_id=_client_id(state),
            target=target,
            target_host=target_host,
        )

    @property
    def primary_name(self) -> str:
        """The primary's name, as in the paths of the backlog queues."""
        backlog = parse_backlog_path(self.queues[0])
        assert backlog is not None
        return backlog[0]

    @property
    def state_shown(self) -> str:
        """Where the state is, without the secrets of a URL."""
        return shown(self.state)

    @property
    def is_retargeted(self) -> bool:
        """Whether messages go to another namespace than the primary."""
        return self.target_host.lower() != self.primary_host.lower()

    @property
    def target_name(self) -> str:
        """The name of the namespace that messages go to."""
        return namespace_or_host(self.target_host) if self.is_retargeted else self.primary_name

    @property
    def secondary_name(self) -> str:
        """The secondary's name: the first label of its host, or the host where it is an address."""
        return namespace_or_host(self.secondary_host)


def _endpoint(role: str, value: str, host: str | None) -> tuple[Target, str]:
    """A connection string, the name of a variable that holds one, or a credential factory."""
    value = value.strip()
    if is_connection_string(value):
        return Target(reference=value), _host_of(role, value)
    if _VARIABLE.match(value):
        text = os.environ.get(value, "").strip()
        if not text:
            raise SetupError(f"{role}: the environment variable {value} is not set")
        # Workers may have another environment, so the value itself is passed on: Spark redacts a
        # key. It does not redact a signature, so workers look that up themselves.
        if "sharedaccesssignature=" in text.lower():
            return Target(reference=f"env:{value}"), _host_of(role, text)
        return Target(reference=text), _host_of(role, text)
    if ":" in value:
        if not host:
            raise SetupError(f"{role}_host is needed with a credential factory")
        return Target(host=host, credential=value), host
    raise SetupError(
        f"{role}: neither a connection string, nor a variable's name, nor module:factory"
    )


def _host_of(role: str, text: str) -> str:
    try:
        return parse_connection_string(text).authority
    except ValueError as exc:
        raise SetupError(f"{role}: {exc}") from None


def default_checkpoint(name: str, secondary_host: str) -> str:
    """Return a directory that a restart finds again: named by the pair, in the user's state."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    existing = next(path for path in (Path(base), *Path(base).parents) if path.exists())
    if not os.access(existing, os.W_OK):
        base = str(Path(tempfile.gettempdir()) / f"pairbus-{getpass.getuser()}")
    digest = hashlib.sha256(secondary_host.lower().encode()).hexdigest()[:8]
    return str(Path(base) / "pairbus" / f"syphon-{name}-{digest}")


def _client_id(state: str) -> str:
    return "syphon-" + hashlib.sha256(state.encode()).hexdigest()[:8]
