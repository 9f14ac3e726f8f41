"""The pure folders stay pure: they decide, and never touch a socket, a clock or a log."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "pairbus"
PURE = [
    "pairing/core",
    "amqp",
    "broker/entities",
    "broker/filters",
    "envelope/cutting.py",
    "envelope/encoded.py",
    "envelope/fields.py",
    "envelope/prefix.py",
    "pricing.py",
    "reports/estimate.py",
    "syphon/backoff.py",
    "syphon/batches.py",
    "syphon/held.py",
    "syphon/limits.py",
    "syphon/planner.py",
    "syphon/progress.py",
    "syphon/records.py",
    "syphon/rates.py",
    "syphon/status_records.py",
    "syphon/refusals.py",
    "syphon/settlement.py",
]
FORBIDDEN = {
    "asyncio", "socket", "threading", "time", "random", "logging", "sqlite3", "azure", "pyspark",
}  # fmt: skip


def pure_modules() -> list[Path]:
    files = [SRC / entry for entry in PURE if entry.endswith(".py")]
    folders = [SRC / entry for entry in PURE if not entry.endswith(".py")]
    return files + [path for folder in folders for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("path", pure_modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_pure_module_imports_nothing_that_acts(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & FORBIDDEN
