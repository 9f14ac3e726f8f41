"""The built wheel in an empty environment: it imports bare, and says what to install."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow]


def find_uv() -> str | None:
    path = ROOT / ".venv" / "uv" / "bin" / "uv"
    return str(path) if path.exists() else None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    uv = find_uv()
    if uv is None:
        pytest.skip("the environment has no uv: run `make setup`")
    done = subprocess.run(
        [uv, "build", "--wheel", "--quiet", "--out-dir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
    )
    if done.returncode and "hatchling" in done.stderr:
        pytest.skip(f"the build back end could not be had: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """An environment with the wheel and what it requires, without extras."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    uv = find_uv()
    python = folder / "bin" / "python"
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--python", str(python), str(wheel)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no package index can be reached: {done.stderr.strip()[-200:]}")
    return folder / "bin"


def run(bare: Path, *command: str, **options):
    env = {"PATH": str(bare), "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        [str(bare / command[0]), *command[1:]], capture_output=True, text=True, env=env, **options
    )


def test_wheel_has_the_page_the_prices_and_the_licences(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "pairbus/py.typed",
        "pairbus/dashboard/templates/overview.html",
        "pairbus/dashboard/static/page.css",
        "pairbus/dashboard/static/vendor/uPlot.iife.min.js",
        "pairbus/dashboard/static/vendor/uPlot.LICENSE",
        "pairbus/prices/2024-06.toml",
    ):
        assert name in names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_bare_install_imports_and_pairs_without_any_extra(bare):
    code = (
        "import pairbus, pairbus.broker; from pairbus import pair_namespace, PairingError;"
        "import sys; print(pairbus.__version__, 'click' in sys.modules, 'pyspark' in sys.modules)"
    )
    done = run(bare, "python", "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["False", "False"]


def test_bare_command_says_what_to_install(bare):
    done = run(bare, "pairbus", "demo")
    assert done.returncode == 69
    assert done.stderr == "pairbus: this needs the command line: pip install 'pairbus[cli]'\n"


def test_bare_ledger_says_what_to_install(bare, tmp_path):
    code = f"from pairbus.ledger.store import Store; Store({str(tmp_path)!r})"
    done = run(bare, "python", "-c", code)
    assert "pip install 'pairbus[ledger]'" in done.stderr


def test_command_line_alone_works_and_names_the_extra_of_each_command(bare, wheel):
    uv = find_uv()
    done = subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", str(bare / "python"), f"{wheel}[cli]"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert run(bare, "pairbus", "--help").returncode == 0
    for command, extra in (
        (("demo",), "all"),
        (("dashboard", "--ledger", "x"), "web"),
        (("reconcile", "x"), "spark"),
    ):
        done = run(bare, "pairbus", *command)
        assert done.returncode == 69, (command, done.stderr)
        assert f"pip install 'pairbus[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr
    # The broker needs nothing more than the command line.
    help_ = run(bare, "pairbus", "broker", "run", "--help")
    assert help_.returncode == 0
