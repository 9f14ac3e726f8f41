"""Settings of the sessions that run jobs over a ledger."""

import pytest

from pairbus.ledger import Store
from pairbus.spark.session import SMALL_LEDGER, job_settings


@pytest.mark.parametrize(("size", "is_quick"), [(None, False), (SMALL_LEDGER, False), (1, True)])
def test_a_small_ledger_is_compiled_quickly_and_planned_once(monkeypatch, size, is_quick):
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    settings = job_settings(size)
    assert ("TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"]) is is_quick
    assert ("spark.sql.adaptive.enabled" in settings) is is_quick


def test_a_collector_that_the_environment_names_stays(monkeypatch):
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC")
    assert "spark.driver.extraJavaOptions" not in job_settings()
    assert "GC" not in job_settings(1)["spark.driver.extraJavaOptions"]


def test_the_size_of_a_ledger_is_that_of_its_complete_files(tmp_path):
    for location in (str(tmp_path), f"file://{tmp_path}"):
        store = Store.create(location)
        store.write_whole("messages/a.parquet", b"12345")
        (tmp_path / "messages" / ".b.tmp").write_bytes(b"67")
        assert store.size("messages") == 5
        assert store.size("operations") == 0
