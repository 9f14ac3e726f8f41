"""A pair of embedded namespaces for the commands, and a runner that knows it."""

import os

import pytest
from click.testing import CliRunner

from pairbus import broker
from pairbus.cli.main import cli


@pytest.fixture(scope="module")
def namespaces():
    """Two namespaces that all tests of a module share; each test uses queues of its own."""
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        yield primary, secondary


@pytest.fixture
def run(namespaces, tmp_path, monkeypatch):
    """Run `pairbus …` against the pair; the primary's name is the test's own."""
    primary, secondary = namespaces
    name = "t" + str(abs(hash(os.environ.get("PYTEST_CURRENT_TEST", ""))))[:8]
    monkeypatch.setenv("PAIRBUS_PRIMARY", primary.connection_string)
    monkeypatch.setenv("PAIRBUS_SECONDARY", secondary.connection_string)
    monkeypatch.setenv("PAIRBUS_PRIMARY_NAMESPACE", name)
    monkeypatch.setenv("PAIRBUS_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*args: str, **options):
        return CliRunner().invoke(cli, args, **options)

    invoke.name = name
    invoke.path = lambda number: f"{name}/x-servicebus-transfer/{number}"
    invoke.ledger = tmp_path / "ledger"
    return invoke
