"""Import paths of version 0.1 that have moved; they work for one more version.

Importing an old module returns a module that looks its names up in the new one, with one
`DeprecationWarning` that points at the importing line. To end the old paths, remove this module.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

#: Old module: new module. The public names of the new module are found in the old one, too.
MOVED: Final = {
    "pairbus.broker.clients": "pairbus.administration",
    "pairbus.broker.credentials": "pairbus.broker.auth.credentials",
    "pairbus.broker.faultproxy": "pairbus.broker.faults.proxy",
    "pairbus.cli.config": "pairbus.monitoring.configuration",
    "pairbus.core": "pairbus.pairing.core",
    "pairbus.core.estimate": "pairbus.reports.estimate",
    "pairbus.core.health": "pairbus.pairing.core.health",
    "pairbus.core.ping": "pairbus.pairing.core.ping",
    "pairbus.core.pricing": "pairbus.pricing",
    "pairbus.core.rotation": "pairbus.pairing.core.rotation",
    "pairbus.core.syphon_message": "pairbus.envelope.encoded",
    "pairbus.core.syphon_prefix": "pairbus.envelope.prefix",
    "pairbus.lean": "pairbus.client",
    "pairbus.lean.auth": "pairbus.client.auth",
    "pairbus.lean.connection": "pairbus.client",
    "pairbus.lean.errors": "pairbus.client.errors",
    "pairbus.lean.management": "pairbus.client",
    "pairbus.lean.received": "pairbus.client.received",
    "pairbus.lean.receiver": "pairbus.client",
    "pairbus.lean.sender": "pairbus.client",
    "pairbus.ledger.page": "pairbus.reports.cost_page",
    "pairbus.ledger.peek": "pairbus.reports.backlog_peek",
    "pairbus.ledger.prices": "pairbus.reports.price_lists",
    "pairbus.metrics": "pairbus.monitoring.metrics",
    "pairbus.spark.books": "pairbus.reports.reconciliation",
    "pairbus.spark.cost": "pairbus.reports.cost_job",
    "pairbus.spark.dryrun": "pairbus.reports.dry_run",
    "pairbus.spark.live": "pairbus.reports.cost_stream",
    "pairbus.spark.reconcile": "pairbus.reports.reconcile_job",
    "pairbus.spark.report": "pairbus.reports.cost_report",
    "pairbus.spark.tables": "pairbus.reports.ledger_tables",
    "pairbus.tracing": "pairbus.monitoring.tracing",
    "pairbus.web": "pairbus.dashboard",
    "pairbus.web.app": "pairbus.dashboard.app",
    "pairbus.web.serve": "pairbus.dashboard.serve",
}

#: Names that were renamed, or are in a different module than the table above gives.
RENAMED: Final = {
    "pairbus.cli.config.Endpoint": "pairbus.monitoring.endpoints.Endpoint",
    "pairbus.cli.config.Pair": "pairbus.monitoring.endpoints.Pair",
    "pairbus.core.ping.PING_CONTENT_TYPE": "pairbus.names.PING_CONTENT_TYPE",
    "pairbus.core.pricing.STEP": "pairbus.names.BILLING_STEP",
    "pairbus.core.pricing.billable": "pairbus.names.billable",
    "pairbus.core.rotation.backlog_path": "pairbus.names.backlog_path",
    "pairbus.core.rotation.backlog_paths": "pairbus.names.backlog_paths",
    "pairbus.envelope.ALIASES": "pairbus.envelope.fields.ALIASES",
    "pairbus.envelope.PATH": "pairbus.envelope.fields.PATH",
    "pairbus.envelope.SCHEDULED_ENQUEUE_TIME": "pairbus.envelope.fields.SCHEDULED_ENQUEUE_TIME",
    "pairbus.envelope.SESSION_ID": "pairbus.envelope.fields.SESSION_ID",
    "pairbus.envelope.TIME_TO_LIVE": "pairbus.envelope.fields.TIME_TO_LIVE",
    "pairbus.envelope.check_reserved": "pairbus.envelope.fields.check_reserved",
    "pairbus.spark.books.Books": "pairbus.reports.reconciliation.Reconciliation",
    "pairbus.lean.LeanConnection": "pairbus.client.BulkConnection",
    "pairbus.lean.LeanError": "pairbus.client.ClientError",
    "pairbus.lean.LeanManagement": "pairbus.client.BulkManagement",
    "pairbus.lean.LeanReceiver": "pairbus.client.BulkReceiver",
    "pairbus.lean.LeanSender": "pairbus.client.BulkSender",
    "pairbus.lean.connection.LeanConnection": "pairbus.client.BulkConnection",
    "pairbus.lean.errors.LeanError": "pairbus.client.ClientError",
    "pairbus.lean.management.LeanManagement": "pairbus.client.BulkManagement",
    "pairbus.lean.receiver.LeanReceiver": "pairbus.client.BulkReceiver",
    "pairbus.lean.sender.LeanSender": "pairbus.client.BulkSender",
}


class _Moved(ModuleType):
    """A module of the previous version; its names are looked up in the new module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _find(self.__name__, name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(MOVED[self.__name__]))


def _find(module: str, name: str) -> Any:
    """Return the object that `name` of the old module refers to now.

    Raises:
        AttributeError: there was no such name, or it is gone.
    """
    old = f"{module}.{name}"
    if old in MOVED:
        return importlib.import_module(old)
    target = RENAMED.get(old) or (f"{MOVED[module]}.{name}" if module in MOVED else None)
    if target is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    place, _, new = target.rpartition(".")
    try:
        return getattr(importlib.import_module(place), new)
    except AttributeError:
        raise AttributeError(f"module {module!r} has no attribute {name!r}") from None


def find_renamed(module: str, name: str) -> Any:
    """Return the object that `name` referred to in a module that still exists, with a warning.

    Raises:
        AttributeError: there was no such name, or it is gone.
    """
    found = _find(module, name)
    warnings.warn(
        f"{module}.{name} is {RENAMED[f'{module}.{name}']}; the old name ends with the next "
        "version",
        DeprecationWarning,
        stacklevel=3,
    )
    return found


class _Finder:
    """Finds the old modules; the finders of existing modules come first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of an old module."""
        if fullname not in MOVED:
            return None
        is_package = any(other.startswith(f"{fullname}.") for other in MOVED)
        loader: Any = self  # a loader by its methods: `importlib.abc` takes long to import
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module that looks its names up in the new one."""
        return _Moved(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and import the new module, so that a missing extra is reported now."""
        warnings.warn(
            f"{module.__name__} is {MOVED[module.__name__]}; the old path ends with the next "
            "version",
            DeprecationWarning,
            stacklevel=2,  # the frames of the import system do not count
        )
        importlib.import_module(MOVED[module.__name__])


def install() -> None:
    """Let the old paths be imported; a second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
