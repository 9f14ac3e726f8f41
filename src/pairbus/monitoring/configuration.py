"""Where pairs come from, so that nobody types a connection string.

One TOML file: `--config FILE`, else `$PAIRBUS_CONFIG`, else `pairbus.toml` in the working folder,
else `~/.config/pairbus/config.toml`::

    default = "orders"                     # the pair that is meant where --pair is not given

    [pairs.orders]
    primary = "CONTOSO"                    # name of an environment variable that holds it, or
    secondary = "Endpoint=sb://…"          # a connection string, or a host with `credential`
    primary_namespace = "contoso"          # only where the host is an address
    backlog_queue_count = 10
    ledger = "/var/lib/pairbus/ledger"
    checkpoint = "/var/lib/pairbus/checkpoint"
    credential = "myapp.identity:credential"   # importable factory of a token credential

The environment goes before the file: `PAIRBUS_PRIMARY`, `PAIRBUS_SECONDARY` (connection strings),
`PAIRBUS_PRIMARY_NAMESPACE`, `PAIRBUS_BACKLOG_QUEUE_COUNT`, `PAIRBUS_LEDGER`, `PAIRBUS_CHECKPOINT`.
Options of a command go before both. A command asks for what it needs::

    @click.command("status")
    @pair_options                # adds --pair --primary --secondary --primary-namespace --ledger …
    def status(pair: Pair) -> None:
        admin = pair.secondary_admin()        # a clear error where the secondary is not configured
        ledger = pair.require_ledger()

`@ledger_option` alone gives `ledger: str` to a command that needs only that. Values with secrets
are `Endpoint`s: their `repr` and `str` are masked.
"""

import contextlib
import dataclasses
import functools
import importlib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.cli.output import ExitCode, UserError, fail, mask, one_line

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

F = TypeVar("F", bound=Callable[..., Any])

PAIR_KEYS = {
    "primary", "secondary", "primary_namespace", "backlog_queue_count", "ledger", "checkpoint",
    "credential",
}  # fmt: skip
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclasses.dataclass(frozen=True, repr=False)
class Endpoint:
    """One namespace: a connection string, or a host name and a factory of a token credential."""

    value: str
    credential: str = ""
    source: str = ""  # where it was said, for error messages

    @property
    def is_connection_string(self) -> bool:
        """Whether this is a connection string (else a host name)."""
        return "endpoint=" in self.value.lower()

    @property
    def is_emulator(self) -> bool:
        """Whether this is an emulator: the embedded broker, say. The SDK takes `true` alone."""
        return bool(re.search(r"(^|;)\s*UseDevelopmentEmulator=true\s*(;|$)", self.value))

    @property
    def host(self) -> str:
        """Host name, with its port where one is said."""
        match = re.search(r"endpoint=\w+://([^/;]+)", self.value, re.IGNORECASE)
        return match[1] if match else self.value

    @property
    def namespace(self) -> str | None:
        """First label of the host name; None where the host is an address."""
        return namespace_of(self.host)

    def __str__(self) -> str:
        return mask(self.value)

    def __repr__(self) -> str:
        return f"<Endpoint {self.host}>"

    def client(self, **options: Any) -> "ServiceBusClient":
        """An azure-servicebus client of this namespace."""
        from azure.servicebus import ServiceBusClient

        if self.is_connection_string:
            with self._wellformed():
                return ServiceBusClient.from_connection_string(self.value, **options)
        return ServiceBusClient(self.host, self.load_credential(), **options)

    def admin(self, **options: Any) -> "ServiceBusAdministrationClient":
        """An azure-servicebus administration client of this namespace."""
        from azure.servicebus.management import ServiceBusAdministrationClient

        if self.is_emulator:
            from pairbus.administration import admin_client

            with self._wellformed():
                return admin_client(self.value, **options)
        if self.is_connection_string:
            with self._wellformed():
                return ServiceBusAdministrationClient.from_connection_string(self.value, **options)
        return ServiceBusAdministrationClient(self.host, self.load_credential(), **options)

    @contextlib.contextmanager
    def _wellformed(self) -> Iterator[None]:
        """Say a mistake in the connection string as one of the configuration."""
        try:
            yield
        except ValueError as exc:
            raise UserError(
                f"{self.source or self.host} is not a whole connection string: {one_line(exc)}",
                "Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY",
                code=ExitCode.USAGE,
            ) from exc

    def load_credential(self) -> Any:
        """Call the credential factory, `module:function`."""
        module, _, name = self.credential.partition(":")
        if not name:
            fail(
                f"{self.host} is a host name and needs a credential",
                '`credential = "module:function"` in the pair\'s table, or a connection string',
                code=ExitCode.USAGE,
            )
        try:
            return getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError) as exc:
            raise UserError(
                f"credential {self.credential!r} cannot be imported ({exc})",
                "a module on PYTHONPATH and a function in it, as module:function",
                code=ExitCode.USAGE,
            ) from exc


@dataclasses.dataclass(frozen=True)
class Pair:
    """One pair of namespaces, as the file, the environment and the options give it together."""

    name: str = "default"
    primary: Endpoint | None = None
    secondary: Endpoint | None = None
    explicit_namespace: str | None = None
    backlog_queue_count: int = 10
    ledger: str | None = None
    checkpoint: str | None = None

    @property
    def primary_namespace(self) -> str:
        """The name that the paths of backlog queues begin with."""
        if self.explicit_namespace:
            return self.explicit_namespace
        derived = self.require_primary().namespace
        if derived is None:
            fail(
                f"the primary's namespace has no name: {self.require_primary().host} is an address",
                "--primary-namespace NAME or PAIRBUS_PRIMARY_NAMESPACE",
                code=ExitCode.USAGE,
            )
        return derived

    def require_primary(self) -> Endpoint:
        """The primary, or a clear error."""
        return self._require("primary", self.primary)

    def require_secondary(self) -> Endpoint:
        """The secondary, or a clear error."""
        return self._require("secondary", self.secondary)

    def require_ledger(self) -> str:
        """The ledger's folder, or a clear error."""
        if self.ledger is None:
            fail(
                "no ledger is given",
                "--ledger FOLDER, PAIRBUS_LEDGER or `ledger` in pairbus.toml",
                code=ExitCode.USAGE,
            )
        return self.ledger

    def primary_client(self, **options: Any) -> "ServiceBusClient":
        """An SDK client of the primary."""
        return self.require_primary().client(**options)

    def secondary_client(self, **options: Any) -> "ServiceBusClient":
        """An SDK client of the secondary."""
        return self.require_secondary().client(**options)

    def primary_admin(self) -> "ServiceBusAdministrationClient":
        """An SDK administration client of the primary."""
        return self.require_primary().admin()

    def secondary_admin(self) -> "ServiceBusAdministrationClient":
        """An SDK administration client of the secondary."""
        return self.require_secondary().admin()

    def _require(self, role: str, endpoint: Endpoint | None) -> Endpoint:
        if endpoint is None:
            fail(
                f"no {role} namespace is given",
                f"`{role}` of a pair in pairbus.toml, PAIRBUS_{role.upper()}, or --{role}",
                code=ExitCode.USAGE,
            )
        return endpoint


def namespace_of(host: str) -> str | None:
    """First label of a host name, None for an address or a name of one label."""
    name = host.split(":")[0].strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        label, dot, _ = name.partition(".")
        return label if dot else None
    return None


def endpoint_of(value: str, *, source: str, credential: str = "") -> Endpoint:
    """Read one namespace: a connection string, a variable's name, or a host with a credential."""
    value = value.strip()
    if "endpoint=" in value.lower():
        return Endpoint(value, credential, source)
    if "." in value or ":" in value:
        return Endpoint(value, credential, source)
    if not _ENV_NAME.match(value):
        fail(
            f"{source} is neither a connection string, nor a host, nor a variable's name",
            "a value that begins with Endpoint=sb://",
            code=ExitCode.USAGE,
        )
    if not os.environ.get(value):
        fail(
            f"{source} names the environment variable {value}, which is not set",
            f"export {value}='Endpoint=sb://…'",
            code=ExitCode.USAGE,
        )
    return endpoint_of(os.environ[value], source=f"${value}", credential=credential)


# ------------------------------------------------------------------ the file


def config_path(explicit: str | None = None) -> Path | None:
    """The configuration file that counts, None if there is none."""
    chosen = explicit or os.environ.get("PAIRBUS_CONFIG")
    if chosen:
        path = Path(chosen).expanduser()
        if not path.is_file():
            problem = "is not a file" if path.exists() else "does not exist"
            fail(f"configuration file {path} {problem}", code=ExitCode.USAGE)
        return path
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    for path in (Path("pairbus.toml"), Path(base).expanduser() / "pairbus" / "config.toml"):
        if path.is_file():
            return path
    return None


def load_config(explicit: str | None = None) -> dict[str, Any]:
    """The configuration file's content, checked; empty if there is no file."""
    if explicit is None and (ctx := click.get_current_context(silent=True)):
        explicit = ctx.meta.get("pairbus.config")
    path = config_path(explicit)
    if path is None:
        return {}
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        fail(f"{path} is not TOML: {exc}", code=ExitCode.USAGE)
    pairs = data.get("pairs", {})
    if unknown := set(data) - {"default", "pairs"}:
        fail(f"{path}: unknown key {min(unknown)!r}", "default, pairs", code=ExitCode.USAGE)
    if not isinstance(pairs, dict) or not all(isinstance(p, dict) for p in pairs.values()):
        fail(f"{path}: pairs must be tables, [pairs.NAME]", code=ExitCode.USAGE)
    for name, table in pairs.items():
        if unknown := set(table) - PAIR_KEYS:
            fail(
                f"{path}: [pairs.{name}] has the unknown key {min(unknown)!r}",
                ", ".join(sorted(PAIR_KEYS)),
                code=ExitCode.USAGE,
            )
    return data


def choose(config: Mapping[str, Any], name: str | None) -> tuple[str, dict[str, Any]]:
    """The table of the pair that is meant, and its name."""
    pairs: dict[str, dict[str, Any]] = config.get("pairs", {})
    if name is not None and name not in pairs:
        known = ", ".join(sorted(pairs))
        remedy = f"one of: {known}" if pairs else f"add [pairs.{name}] to a configuration file"
        fail(f"no pair is called {name!r}", remedy, code=ExitCode.USAGE)
    chosen = name or config.get("default") or (next(iter(pairs)) if len(pairs) == 1 else None)
    if chosen is None:
        return "default", {}
    if chosen not in pairs:
        fail(f"default = {chosen!r} names no pair of the file", code=ExitCode.USAGE)
    return chosen, pairs[chosen]


def resolve_pair(
    name: str | None = None,
    *,
    primary: str | None = None,
    secondary: str | None = None,
    primary_namespace: str | None = None,
    ledger: str | None = None,
    checkpoint: str | None = None,
    backlog_queue_count: int | None = None,
) -> Pair:
    """Put a pair together: options go before the environment, and that goes before the file."""
    chosen, table = choose(load_config(), name)

    def endpoint(role: str, option: str | None) -> Endpoint | None:
        credential = str(table.get("credential", ""))
        # A pair that is asked for by name is meant: then the environment does not override it.
        env = None if name else os.environ.get(f"PAIRBUS_{role.upper()}")
        for value, source in (
            (option, f"--{role}"),
            (env, f"PAIRBUS_{role.upper()}"),
            (table.get(role), f"{role} of the pair {chosen}"),
        ):
            if value:
                return endpoint_of(str(value), source=source, credential=credential)
        return None

    def setting(key: str, option: Any) -> Any:
        env = None if name else os.environ.get(f"PAIRBUS_{key.upper()}")
        return option if option is not None else env or table.get(key)

    count = setting("backlog_queue_count", backlog_queue_count)
    try:
        count = 10 if count is None else int(count)
    except ValueError:
        fail(f"backlog_queue_count must be a number, got {count!r}", code=ExitCode.USAGE)
    if count < 1:
        fail(f"backlog_queue_count must be at least 1, got {count}", code=ExitCode.USAGE)
    return Pair(
        name=chosen,
        primary=endpoint("primary", primary),
        secondary=endpoint("secondary", secondary),
        explicit_namespace=setting("primary_namespace", primary_namespace),
        backlog_queue_count=count,
        ledger=setting("ledger", ledger),
        checkpoint=setting("checkpoint", checkpoint),
    )


# ------------------------------------------------------------------ decorators


def pair_options(command: F) -> F:
    """Give a command the options that say which pair is meant; it gets `pair: Pair`."""

    @click.option("--pair", "pair_name", metavar="NAME", help="A pair of the configuration file.")
    @click.option("--primary", metavar="CS|VAR", help="Primary: connection string or variable.")
    @click.option("--secondary", metavar="CS|VAR", help="Secondary: connection string or variable.")
    @click.option("--primary-namespace", metavar="NAME", help="The primary's name, for addresses.")
    @click.option("--ledger", metavar="FOLDER", help="The ledger's folder.")
    @functools.wraps(command)
    def wrapper(
        *args: Any,
        pair_name: str | None,
        primary: str | None,
        secondary: str | None,
        primary_namespace: str | None,
        ledger: str | None,
        **kwargs: Any,
    ) -> Any:
        pair = resolve_pair(
            pair_name,
            primary=primary,
            secondary=secondary,
            primary_namespace=primary_namespace,
            ledger=ledger,
        )
        return command(*args, pair=pair, **kwargs)

    return wrapper  # type: ignore[return-value]


def ledger_option(command: F) -> F:
    """Give a command --pair and --ledger; it gets `ledger: str`, or ends with a clear error."""

    @click.option("--pair", "pair_name", metavar="NAME", help="A pair of the configuration file.")
    @click.option("--ledger", metavar="FOLDER", help="The ledger's folder.")
    @functools.wraps(command)
    def wrapper(*args: Any, pair_name: str | None, ledger: str | None, **kwargs: Any) -> Any:
        if ledger is None:
            ledger = resolve_pair(pair_name).require_ledger()
        return command(*args, ledger=ledger, **kwargs)

    return wrapper  # type: ignore[return-value]
