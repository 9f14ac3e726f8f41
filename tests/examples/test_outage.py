"""The example does what it says, and is short."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "outage.py"


@pytest.mark.slow
@pytest.mark.sdk
def test_outage_example_keeps_sending_and_prints_what_happened(capsys):
    runpy.run_path(str(EXAMPLE))["main"]()

    shown = capsys.readouterr().out
    assert "FailedOver: orders" in shown
    assert "orders is failed_over" in shown
    assert "1 sent to the primary, 4 stored in" in shown
    assert len(EXAMPLE.read_text().splitlines()) < 40
