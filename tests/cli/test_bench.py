"""`pairbus bench` measures with real parts."""

import gc
import json

import pytest
from click.testing import CliRunner

from pairbus.cli.main import cli

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.slow,
    # The SDK leaves the socket of a connection that was reset to the garbage collector: here.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_bench_gives_a_figure_for_each_way_of_a_message():
    result = CliRunner().invoke(cli, ["bench", "--messages", "20", "--size", "100", "--json"])
    gc.collect()
    assert result.exit_code == 0, result.output
    figures = {row["name"]: row["value"] for row in json.loads(result.output)}
    assert set(figures) == {
        "direct", "paired", "paired, added per message", "failover", "backlog", "drain",
    }  # fmt: skip
    assert all(figures[name] > 0 for name in ("direct", "paired", "failover", "backlog", "drain"))
