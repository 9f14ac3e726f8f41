"""A library of an extra that is not installed is named in one line, everywhere."""

import json
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pairbus.cli.errors import ExitCode

pytestmark = pytest.mark.slow

WITHOUT = """
    import importlib.abc, runpy, sys

    class Missing(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {modules!r}:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

    sys.meta_path.insert(0, Missing())
"""


def run_without(module: str, code: str) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(WITHOUT.format(modules={module})) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)


def not_installed_by(extra: str) -> set[str]:
    """The modules of this environment that `pip install 'pairbus[extra]'` does not install."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    todo = [Requirement(text) for text in project["dependencies"]]
    todo += [Requirement(text) for text in project["optional-dependencies"][extra]]
    installed = {"pairbus"}
    while todo:
        required = todo.pop()
        name = canonicalize_name(required.name)
        marker = required.marker
        if name in installed or (marker is not None and not marker.evaluate({"extra": ""})):
            continue
        installed.add(name)
        todo += [Requirement(text) for text in distribution(name).requires or ()]
    return {
        module
        for module, names in packages_distributions().items()
        if installed.isdisjoint(map(canonicalize_name, names))
    }


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("click", ["check"], "cli"),
        ("cryptography", ["broker", "run", "--port", "0"], "broker"),
        ("h11", ["broker", "run", "--port", "0"], "broker"),
        ("wsproto", ["bench"], "broker"),
        ("pyarrow", ["check", "--ledger", "/nowhere"], "ledger"),
        ("pyspark", ["reconcile", "/nowhere"], "spark"),
        ("starlette", ["dashboard", "--ledger", "/nowhere"], "web"),
    ],
)
def test_command_names_the_extra_and_ends_with_its_exit_code(module, command, extra):
    done = run_without(
        module,
        f"""
        sys.argv = ["pairbus", *{command!r}]
        runpy.run_module("pairbus", run_name="__main__")
        """,
    )
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"pip install 'pairbus[{extra}]'" in done.stderr
    assert done.returncode == ExitCode.MISSING_EXTRA


@pytest.mark.parametrize(
    ("module", "code", "extra"),
    [
        ("cryptography", "from pairbus import broker\nwith broker.run(): pass", "broker"),
        ("h11", "from pairbus import broker\nwith broker.run(): pass", "broker"),
        ("aiohttp", "from pairbus.aio import pair_namespace", "aio"),
        ("pyspark", "import pairbus.reports.reconciliation", "spark"),
        ("pyspark", "import pairbus.reports.cost_report", "spark"),
        ("starlette", "from pairbus.dashboard.serve import serving", "web"),
        ("prometheus_client", "from pairbus.monitoring.metrics import render", "prometheus"),
        ("opentelemetry", "import pairbus.monitoring.tracing", "otel"),
    ],
)
def test_library_names_the_extra(module, code, extra):
    done = run_without(module, code)
    assert done.returncode == 1
    assert f"pip install 'pairbus[{extra}]'" in done.stderr.splitlines()[-1]


def test_extra_of_the_broker_is_all_that_its_command_and_its_fixtures_need():
    absent = not_installed_by("broker")
    assert {"pyspark", "pyarrow", "starlette", "rich", "aiohttp"} <= absent
    code = """
    import pairbus.testing
    from pairbus import broker
    with broker.run():
        pass
    sys.argv = ["pairbus", "broker", "run", "--port", "0", "--json"]
    runpy.run_module("pairbus", run_name="__main__")
    """
    # The fixtures run below pytest, which is the user's own.
    text = WITHOUT.format(modules=absent - {"pytest", "_pytest", "pluggy", "iniconfig"})
    text = textwrap.dedent(text) + textwrap.dedent(code)
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ready = process.stdout.readline()
        process.terminate()
        assert ready, process.stderr.read()
        assert json.loads(ready)["ready"] is True
