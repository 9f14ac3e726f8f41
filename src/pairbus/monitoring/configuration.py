"""Pairs from a configuration file, the environment and options.

One TOML file: `--config FILE`, else `$PAIRBUS_CONFIG`, else `pairbus.toml` in the working
directory, else `~/.config/pairbus/config.toml`::

    default = "orders"                     # the pair to use where --pair is not given

    [pairs.orders]
    primary = "CONTOSO"                    # name of an environment variable that holds it, or
    secondary = "Endpoint=sb://…"          # a connection string, or a host with `credential`
    primary_namespace = "contoso"          # only where the host is an address
    backlog_queue_count = 10
    ledger = "/var/lib/pairbus/ledger"
    checkpoint = "/var/lib/pairbus/checkpoint"
    credential = "myapp.identity:credential"   # importable factory of a token credential

The environment overrides the file: `PAIRBUS_PRIMARY`, `PAIRBUS_SECONDARY` (connection strings),
`PAIRBUS_PRIMARY_NAMESPACE`, `PAIRBUS_BACKLOG_QUEUE_COUNT`, `PAIRBUS_LEDGER`, `PAIRBUS_CHECKPOINT`.
Options of a command override both.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairbus.monitoring.endpoints import ConfigurationError, Endpoint, Pair, endpoint_of

PAIR_KEYS = {
    "primary", "secondary", "primary_namespace", "backlog_queue_count", "ledger", "checkpoint",
    "credential",
}  # fmt: skip


def config_path(explicit: str | None = None) -> Path | None:
    """The configuration file that is used; None if there is none."""
    chosen = explicit or os.environ.get("PAIRBUS_CONFIG")
    if chosen:
        path = Path(chosen).expanduser()
        if not path.is_file():
            problem = "is not a file" if path.exists() else "does not exist"
            raise ConfigurationError(f"configuration file {path} {problem}")
        return path
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    for path in (Path("pairbus.toml"), Path(base).expanduser() / "pairbus" / "config.toml"):
        if path.is_file():
            return path
    return None


def load_config(explicit: str | None = None) -> dict[str, Any]:
    """The configuration file's content, checked; empty if there is no file."""
    path = config_path(explicit)
    if path is None:
        return {}
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path} is not TOML: {exc}") from exc
    pairs = data.get("pairs", {})
    if unknown := set(data) - {"default", "pairs"}:
        raise ConfigurationError(f"{path}: unknown key {min(unknown)!r}", "default, pairs")
    if not isinstance(pairs, dict) or not all(isinstance(p, dict) for p in pairs.values()):
        raise ConfigurationError(f"{path}: pairs must be tables, [pairs.NAME]")
    if not isinstance(data.get("default", ""), str):
        raise ConfigurationError(f"{path}: default must be a string, the name of a pair")
    for name, table in pairs.items():
        if unknown := set(table) - PAIR_KEYS:
            raise ConfigurationError(
                f"{path}: [pairs.{name}] has the unknown key {min(unknown)!r}",
                ", ".join(sorted(PAIR_KEYS)),
            )
        for key, value in table.items():
            if not isinstance(value, str) and key != "backlog_queue_count":
                raise ConfigurationError(f"{path}: [pairs.{name}]: {key} must be a string")
    return data


def choose(config: Mapping[str, Any], name: str | None) -> tuple[str, dict[str, Any]]:
    """The name and the table of the chosen pair."""
    pairs: dict[str, dict[str, Any]] = config.get("pairs", {})
    if name is not None and name not in pairs:
        known = ", ".join(sorted(pairs))
        remedy = f"one of: {known}" if pairs else f"add [pairs.{name}] to a configuration file"
        raise ConfigurationError(f"no pair is called {name!r}", remedy)
    chosen = name or config.get("default") or (next(iter(pairs)) if len(pairs) == 1 else None)
    if chosen is None:
        return "default", {}
    if chosen not in pairs:
        raise ConfigurationError(f"default = {chosen!r} names no pair of the file")
    return chosen, pairs[chosen]


def resolve_pair(
    name: str | None = None,
    *,
    config: str | None = None,
    primary: str | None = None,
    secondary: str | None = None,
    primary_namespace: str | None = None,
    ledger: str | None = None,
) -> Pair:
    """Return a pair: options override the environment, and that overrides the file."""
    config_data = load_config(config)
    chosen, table = choose(config_data, name)

    def endpoint(role: str, option: str | None) -> Endpoint | None:
        credential = str(table.get("credential", ""))
        # The environment does not override a pair that was chosen by name.
        env = None if name else os.environ.get(f"PAIRBUS_{role.upper()}")
        for value, source in (
            (option, f"--{role}"),
            (env, f"PAIRBUS_{role.upper()}"),
            (table.get(role), f"{role} of the pair {chosen}"),
        ):
            if value:
                return endpoint_of(str(value), source=source, credential=credential)
        return None

    def setting(key: str, option: str | None = None) -> Any:
        env = None if name else os.environ.get(f"PAIRBUS_{key.upper()}")
        return option if option is not None else env or table.get(key)

    count = setting("backlog_queue_count")
    try:
        count = 10 if count is None else int(count)
    except (TypeError, ValueError):
        raise ConfigurationError(f"backlog_queue_count must be a number, got {count!r}") from None
    if count < 1:
        raise ConfigurationError(f"backlog_queue_count must be at least 1, got {count}")
    return Pair(
        name=chosen,
        primary=endpoint("primary", primary),
        secondary=endpoint("secondary", secondary),
        explicit_namespace=setting("primary_namespace", primary_namespace),
        backlog_queue_count=count,
        ledger=setting("ledger", ledger),
        checkpoint=setting("checkpoint"),
        candidates=() if table else tuple(sorted(config_data.get("pairs", {}))),
    )
