"""Reports over a ledger that version 0.1.0 wrote."""

import shutil
from pathlib import Path

import pytest

from pairbus.reports.cost_report import cost_report
from pairbus.reports.price_lists import load_prices
from pairbus.reports.reconciliation import balance

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LEDGER = Path(__file__).parents[2] / "upgrade" / "data" / "ledger"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return str(shutil.copytree(LEDGER, tmp_path_factory.mktemp("old") / "ledger"))


def test_its_messages_are_reconciled(spark, ledger):
    books = balance(spark, ledger)
    assert (books.totals["expected"], books.totals["once"]) == (33, 23)
    # Ten messages were still in the backlog, which this report does not peek.
    assert {row["destination"] for row in books.lost} == {"bills"}
    assert len(books.lost) == 10


def test_its_operations_are_priced(spark, ledger):
    report = cost_report(spark, ledger, load_prices())
    stages = {line.name[0]: line for line in report.by_stage}
    assert stages["send_backlog"].messages == 33
    assert stages["send_backlog"].operations == 33
    assert stages["send_primary"].messages == 1
    assert report.total.money > 0
