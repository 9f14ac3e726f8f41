"""`spark-submit` with our job script: a cluster whose workers have only pyspark and pyarrow."""

import json
import os
import subprocess
import sys

import pytest

from pairbus import broker
from pairbus.cli.spark_job import command_of
from tests.spark.cluster import Cluster, bare_python
from tests.syphon.conftest import Pair, backlog_message, make_queues, order_of


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path, python=bare_python(tmp_path / "venv"))
    yield made
    made.close()


def test_the_job_takes_the_options_of_the_command_line():
    assert command_of(["syphon", "--until-empty"]) == ["syphon", "run", "--until-empty"]
    assert command_of(["syphon", "run", "--snapshot"]) == ["syphon", "run", "--snapshot"]
    assert command_of(["cost", "ledger"]) == ["cost", "report", "ledger"]
    assert command_of(["reconcile", "ledger", "--json"]) == ["reconcile", "ledger", "--json"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "one of syphon, cost, reconcile"),
        (["drain"], "got 'drain'"),
        (["syphon", "--master", "local[2]"], "--master belongs before the script"),
        (["syphon", "--master=local[2]"], "--master belongs before the script"),
    ],
)
def test_a_wrong_job_is_refused_in_one_line(arguments, problem):
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        command_of(arguments)


@pytest.mark.slow
def test_the_bundle_is_all_that_an_executor_imports(tmp_path):
    pairbus(tmp_path, "spark", "bundle", "first.zip")
    pairbus(tmp_path, "spark", "bundle", "second.zip")
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    imports = (
        "import pairbus.spark.source, pairbus.spark.sink, pairbus.spark.driver, pairbus.ledger"
    )
    python = bare_python(tmp_path / "venv")
    done = subprocess.run(
        [python, "-c", f"import sys; sys.path.insert(0, 'first.zip'); {imports}.receipts"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_submitted_jobs_drain_and_report_on_workers_with_nothing_installed(cluster, tmp_path):
    script = pairbus(tmp_path, "spark", "job-path").strip()
    pairbus(tmp_path, "spark", "bundle", "pairbus.zip")

    def submit(secrets, *job):
        errors = tmp_path / "errors"
        with errors.open("w") as log:
            done = subprocess.run(
                [f"{cluster.home}/bin/spark-submit", "--master", cluster.url,
                 "--py-files", "pairbus.zip", script, *job],
                cwd=tmp_path, env={**cluster.environment, **secrets},
                stdout=subprocess.PIPE, stderr=log, text=True, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stdout + errors.read_text()[-8000:]
        return json.loads(done.stdout)

    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        make_queues(secondary, 2)
        pair = Pair(primary, secondary, 2, tmp_path)
        for queue in range(2):
            pair.fill([backlog_message("orders", n, more={"q": queue}) for n in range(500)], queue)
        secrets = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
            "PAIRBUS_PRIMARY_NAMESPACE": "contoso",
        }
        ledger = str(tmp_path / "ledger")
        status = submit(
            {**secrets, "PAIRBUS_LEDGER": ledger}, "syphon", "--queues", "2", "--until-empty",
            "--json", "--checkpoint", str(tmp_path / "checkpoint"),
        )  # fmt: skip
        assert (status["state"], status["forwarded"]) == ("stopped", 1000)
        got = pair.take("orders", 1000)
        pair.close()
    assert [order_of(got, queue) for queue in range(2)] == [list(range(500))] * 2
    account = submit({}, "reconcile", ledger, "--json")
    assert account["totals"]["once"] == 1000
    cost = submit({}, "cost", ledger, "--json")
    assert cost["total"]


def pairbus(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pairbus", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_a_backlog_is_delivered_to_the_secondary_and_the_account_balances(tmp_path):
    ledger = str(tmp_path / "ledger")
    with broker.run("contoso-dr") as secondary:
        make_queues(secondary, 2)
        for name in ("orders", "invoices-new"):
            secondary.create_queue(name)
        pair = Pair(None, secondary, 2, tmp_path)
        for queue, path in enumerate(("orders", "invoices")):
            pair.fill([backlog_message(path, n, more={"q": queue}) for n in range(50)], queue)
        pair.close()
        environment = {
            **os.environ, "PAIRBUS_SECONDARY": secondary.connection_string,
            "PAIRBUS_PRIMARY_NAMESPACE": "contoso", "PAIRBUS_LEDGER": ledger,
        }  # fmt: skip
        environment.pop("PAIRBUS_PRIMARY", None)
        done = subprocess.run(
            [sys.executable, "-m", "pairbus", "syphon", "run", "--to", "secondary", "--map",
             "invoices=invoices-new", "--until-empty", "--json", "--master", "local[2]",
             "--checkpoint", str(tmp_path / "checkpoint")],
            env=environment, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        moved = Pair(secondary, secondary, 2, tmp_path)
        for entity in ("orders", "invoices-new"):
            assert moved.numbers(entity, 50) == list(range(50))
        moved.close()
        account = subprocess.run(
            [sys.executable, "-m", "pairbus", "reconcile", ledger, "--json"],
            env=environment, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    assert account.returncode == 0, account.stdout + account.stderr
    rows = json.loads(account.stdout)["by_destination"]
    assert [(row["destination"], row["once"]) for row in rows] == [("invoices", 50), ("orders", 50)]
