"""A namespace and a pair of namespaces, as a configuration describes them.

A namespace is a connection string, or a host name with a factory of a token credential. Values with
secrets are in `Endpoint`s, whose `repr` and `str` are masked. A command that needs a missing value
gets an error that names the options and variables that provide it.
"""

import contextlib
import dataclasses
import importlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pairbus.monitoring.formatting import mask, one_line
from pairbus.names import (
    ConnectionString,
    is_connection_string,
    namespace_from_host,
    parse_connection_string,
)
from pairbus.options import SyphonOptions

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

    from pairbus.client import BulkConnection

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ConfigurationError(Exception):
    """The configuration is wrong or incomplete; the message says in one line what to try."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(mask(f"{message.rstrip('.')}. Try: {hint}" if hint else message))


@dataclasses.dataclass(frozen=True, repr=False)
class Endpoint:
    """One namespace: a connection string, or a host name and a factory of a token credential."""

    value: str
    credential: str = ""
    source: str = ""  # the option, variable or key that named it, for error messages

    @property
    def is_connection_string(self) -> bool:
        """Whether this is a connection string (else a host name)."""
        return is_connection_string(self.value)

    @property
    def is_emulator(self) -> bool:
        """Whether this is an emulator, such as the embedded broker."""
        parts = self._parts()
        return parts is not None and parts.is_emulator

    @property
    def host(self) -> str:
        """Host name, with its port where one is given."""
        if not self.is_connection_string:
            return self.value
        parts = self._parts()
        return parts.authority if parts is not None else "(malformed connection string)"

    @property
    def access(self) -> str:
        """What options take for it: the connection string, or the credential factory."""
        return self.value if self.is_connection_string else self.credential

    @property
    def access_host(self) -> str | None:
        """The host that options need in addition to `access`; None with a connection string."""
        return None if self.is_connection_string else self.host

    @property
    def namespace(self) -> str | None:
        """First label of the host name; None where the host is an address."""
        try:
            return namespace_from_host(self.host)
        except ValueError:
            return None

    def _parts(self) -> ConnectionString | None:
        """The parts of the connection string; None for a host or a malformed string."""
        try:
            return parse_connection_string(self.value) if self.is_connection_string else None
        except ValueError:
            return None

    def __str__(self) -> str:
        return mask(self.value)

    def __repr__(self) -> str:
        return f"<Endpoint {self.host}>"

    def client(self, **options: Any) -> "ServiceBusClient":
        """Return an azure-servicebus client of this namespace."""
        from azure.servicebus import ServiceBusClient

        if self.is_connection_string:
            with self._wellformed():
                return ServiceBusClient.from_connection_string(self.value, **options)
        return ServiceBusClient(self.host, self.load_credential(), **options)

    def admin(self, **options: Any) -> "ServiceBusAdministrationClient":
        """Return an azure-servicebus administration client of this namespace."""
        from azure.servicebus.management import ServiceBusAdministrationClient

        if self.is_emulator:
            from pairbus.administration import admin_client

            with self._wellformed():
                return admin_client(self.value, **options)
        if self.is_connection_string:
            with self._wellformed():
                return ServiceBusAdministrationClient.from_connection_string(self.value, **options)
        return ServiceBusAdministrationClient(self.host, self.load_credential(), **options)

    def bulk_connection(self) -> "BulkConnection":
        """Return a connection of the bulk client, to be used as a context manager."""
        from pairbus.client import BulkConnection

        if self.is_connection_string:
            with self._wellformed():
                return BulkConnection(self.value)
        return BulkConnection(host=self.host, credential=self.load_credential())

    @contextlib.contextmanager
    def _wellformed(self) -> Iterator[None]:
        """Report a mistake in the connection string as one of the configuration."""
        try:
            yield
        except ValueError as exc:
            raise ConfigurationError(
                f"{self.source or self.host} is not a valid connection string: {one_line(exc)}",
                "Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY",
            ) from exc

    def load_credential(self) -> Any:
        """Call the credential factory, `module:function`."""
        module, _, name = self.credential.partition(":")
        if not name:
            raise ConfigurationError(
                f"{self.host} is a host name and needs a credential",
                '`credential = "module:function"` in the pair\'s table, or a connection string',
            )
        try:
            return getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError) as exc:
            raise ConfigurationError(
                f"credential {self.credential!r} cannot be imported ({exc})",
                "a module on PYTHONPATH and a function in it, as module:function",
            ) from exc


@dataclasses.dataclass(frozen=True)
class Pair:
    """One pair of namespaces, resolved from the file, the environment and the options."""

    name: str = "default"
    primary: Endpoint | None = None
    secondary: Endpoint | None = None
    explicit_namespace: str | None = None
    backlog_queue_count: int = 10
    ledger: str | None = None
    checkpoint: str | None = None
    candidates: tuple[str, ...] = ()  # pairs of the file, where none of them was chosen

    @property
    def primary_namespace(self) -> str:
        """The name that the paths of backlog queues begin with."""
        if self.explicit_namespace:
            return self.explicit_namespace
        derived = self.require_primary().namespace
        if derived is None:
            raise ConfigurationError(
                f"the primary's namespace has no name: {self.require_primary().host} is an address",
                "--primary-namespace NAME or PAIRBUS_PRIMARY_NAMESPACE",
            )
        return derived

    def require_primary(self) -> Endpoint:
        """Return the primary; raise ConfigurationError if there is none."""
        return self._require("primary", self.primary)

    def require_secondary(self) -> Endpoint:
        """Return the secondary; raise ConfigurationError if there is none."""
        return self._require("secondary", self.secondary)

    def require_ledger(self) -> str:
        """Return the ledger's location; raise ConfigurationError if there is none."""
        if self.ledger is None:
            raise self._missing(
                "no ledger is given",
                "--ledger DIR, PAIRBUS_LEDGER or `ledger` in pairbus.toml",
            )
        return self.ledger

    def secondary_client(self, **options: Any) -> "ServiceBusClient":
        """Return an SDK client of the secondary."""
        return self.require_secondary().client(**options)

    def primary_admin(self) -> "ServiceBusAdministrationClient":
        """Return an SDK administration client of the primary."""
        return self.require_primary().admin()

    def secondary_admin(self) -> "ServiceBusAdministrationClient":
        """Return an SDK administration client of the secondary."""
        return self.require_secondary().admin()

    def syphon_options(self, **settings: Any) -> SyphonOptions:
        """Return the options of a syphon of this pair, with these settings."""
        primary, secondary = self.require_primary(), self.require_secondary()
        pair: dict[str, Any] = {
            "primary": primary.access,
            "secondary": secondary.access,
            "primary_host": primary.access_host,
            "secondary_host": secondary.access_host,
            "primary_namespace": self.primary_namespace,
            "backlog_queue_count": self.backlog_queue_count,
            "checkpoint": self.checkpoint,
            "ledger": self.ledger,
        }
        return SyphonOptions(**{**pair, **settings})

    def _require(self, role: str, endpoint: Endpoint | None) -> Endpoint:
        if endpoint is None:
            raise self._missing(
                f"no {role} namespace is given",
                f"`{role}` of a pair in pairbus.toml, PAIRBUS_{role.upper()}, or --{role}",
            )
        return endpoint

    def _missing(self, message: str, hint: str) -> ConfigurationError:
        if self.candidates:
            names = ", ".join(self.candidates)
            return ConfigurationError(
                f"which pair: {names}? None is the default",
                f'--pair {self.candidates[0]}, or `default = "{self.candidates[0]}"` in the file',
            )
        return ConfigurationError(message, hint)


def endpoint_of(value: str, *, source: str, credential: str = "") -> Endpoint:
    """Read one namespace: a connection string, a variable's name, or a host with a credential."""
    value = value.strip()
    kinds = "a connection string, nor a host, nor a variable's name"
    if _ENV_NAME.match(value):
        if not os.environ.get(value):
            raise ConfigurationError(
                f"{source} names the environment variable {value}, which is not set",
                f"export {value}='Endpoint=sb://…'",
            )
        source, value = f"${value}", os.environ[value].strip()
        kinds = "a connection string, nor a host"
    if not is_connection_string(value) and "." not in value and ":" not in value:
        raise ConfigurationError(
            f"{source} is neither {kinds}", "a value that begins with Endpoint=sb://"
        )
    return Endpoint(value, credential, source)
