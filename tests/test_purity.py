"""Pure packages touch no socket, clock or log; users of the runtime reach these only through it.

The pure packages are listed in pyproject.toml.
"""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]["include"]
FORBIDDEN = {
    "asyncio", "socket", "threading", "time", "random", "logging", "sqlite3", "azure", "pyspark",
}  # fmt: skip


RUNTIME_USERS = ["client/**/*.py", "syphon/**/*.py", "ledger/writer.py", "ledger/receipts.py",
                 "ledger/store.py", "broker/store/*.py"]  # fmt: skip
OUTSIDE_THE_RUNTIME = {
    "asyncio", "concurrent", "random", "secrets", "select", "selectors", "socket", "subprocess",
    "threading", "time",
}  # fmt: skip
CALLS_OUTSIDE_THE_RUNTIME = {
    "access", "exists", "gettempdir", "is_dir", "is_file", "iterdir", "mkdir", "mkdtemp", "open",
    "read_bytes", "read_text", "rmdir", "rmtree", "today", "touch", "unlink", "urandom", "utcnow",
    "uuid1", "uuid4", "write_bytes", "write_text",
}  # fmt: skip
BEFORE_THE_RUNTIME = {  # settings, which are read before there is a runtime
    "syphon/target.py": {"read_text"},
    "syphon/setup.py": {"access", "exists", "gettempdir", "is_file", "mkdir"},
}


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


def runtime_users() -> list[Path]:
    root = ROOT / "src/pairbus"
    found = [path for pattern in RUNTIME_USERS for path in sorted(root.glob(pattern))]
    return [path for path in found if "_sync" not in path.parts]


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@pytest.mark.parametrize(
    "path", runtime_users(), ids=lambda p: str(p.relative_to(ROOT / "src/pairbus"))
)
def test_user_of_the_runtime_has_clock_threads_sockets_and_files_from_it(path: Path) -> None:
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if not is_for_types(node)]
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {alias.name.split(".")[0] for alias in node.names} & OUTSIDE_THE_RUNTIME
        elif isinstance(node, ast.ImportFrom) and node.module:
            used |= {node.module.split(".")[0]} & OUTSIDE_THE_RUNTIME
        elif isinstance(node, ast.Call):
            match node.func:
                case ast.Name(name):
                    used |= {name} & CALLS_OUTSIDE_THE_RUNTIME
                case ast.Attribute(owner, name) if "runtime" not in ast.unparse(owner):
                    used |= {name} & (CALLS_OUTSIDE_THE_RUNTIME - {"open"})
    name = path.relative_to(ROOT / "src/pairbus").as_posix()
    assert used == BEFORE_THE_RUNTIME.get(name, set())
