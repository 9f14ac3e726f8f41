"""The pure packages, as pyproject.toml lists them, touch no socket, no clock and no log."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]["include"]
FORBIDDEN = {
    "asyncio", "socket", "threading", "time", "random", "logging", "sqlite3", "azure", "pyspark",
}  # fmt: skip


def pure_modules() -> list[Path]:
    return [path for pattern in PURE for path in sorted(ROOT.glob(pattern)) if path.suffix == ".py"]


@pytest.mark.parametrize(
    "path", pure_modules(), ids=lambda p: str(p.relative_to(ROOT / "src/pairbus"))
)
def test_pure_module_imports_nothing_that_acts(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & FORBIDDEN
