"""A library of an extra that is not installed is named in one line, everywhere."""

import subprocess
import sys
import textwrap

import pytest

from pairbus.cli.errors import ExitCode

pytestmark = pytest.mark.slow

WITHOUT = """
    import importlib.abc, runpy, sys

    class Missing(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == {module!r}:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

    sys.meta_path.insert(0, Missing())
"""


def run_without(module: str, code: str) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(WITHOUT.format(module=module)) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)


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
