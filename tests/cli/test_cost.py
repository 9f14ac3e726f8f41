"""`pairbus cost`, `reconcile` and `ledger`: answers, and one clear line where there is none."""

import json
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pairbus.cli.main import cli
from pairbus.ledger import LedgerWriter, write_receipts
from pairbus.runtime import ThreadRuntime


def pairbus(*arguments):
    return CliRunner().invoke(cli, list(arguments))


def runtime_at(moment):
    runtime = ThreadRuntime()
    runtime.time = lambda: moment
    return runtime


@pytest.fixture
def ledger(tmp_path):
    place = str(tmp_path / "ledger")
    with LedgerWriter(place, client_id="app", runtime=runtime_at(1_772_366_400.0)) as writer:
        writer.count("contoso-dr", "contoso/x-servicebus-transfer/0", "send_backlog", "send",
                     messages=2, size=2000, billable=2)  # fmt: skip
        rows = [
            {
                "message_id": f"m{n}",
                "destination": "orders",
                "backlog_queue": "contoso/x-servicebus-transfer/0",
                "size": 1000,
            }
            for n in (1, 2)
        ]
        writer.backlogged(rows)
    write_receipts(place, [{**rows[0], "event": "forwarded", "sequence_number": 1}])
    return place


def test_an_estimate_answers_with_one_option():
    answer = pairbus("cost", "estimate", "--queues", "10")
    assert answer.exit_code == 0
    for figure in ("40", "960", "28,800", "send to backlog", "Assumed:", "low"):
        assert figure in answer.output


def test_an_estimate_as_json_has_both_ends():
    answer = pairbus(
        "cost", "estimate", "--clients", "200", "--entities", "12", "--rate", "50/s", "--size",
        "2KB", "--outage", "2h", "--queues", "10", "--json",
    )  # fmt: skip
    data = json.loads(answer.output)
    assert data["messages"] == 360_000
    assert data["idle"]["hour"]["operations"] == 40
    assert data["idle"]["hour"]["operations_low"] == 0
    assert data["extra"]["operations"] == 3 * 360_000 + 288_000
    assert data["extra"]["money"] == "1.0944"


def test_an_estimate_needs_no_spark():
    code = (
        "import sys; sys.argv = ['pairbus', 'cost', 'estimate']\n"
        "from pairbus.cli.main import cli\n"
        "try: cli(standalone_mode=False)\n"
        "finally: assert not {'pyspark', 'pyarrow'} & set(sys.modules), 'imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cost", "estimate", "--size", "2XB"], "is not a size"),
        (["cost", "estimate", "--clients", "0"], "--clients"),
        (["cost", "estimate", "--tier", "gold"], "no prices for tier 'gold'"),
        (["cost", "estimate", "--prices", "/none.toml"], "/none.toml: No such file"),
        (["cost", "report", "{tmp}"], "not a ledger"),
        (["cost", "report", "{tmp}", "--from", "2026-03-02", "--to", "2026-03-01"], "not before"),
        (["cost", "report", "{tmp}", "--from", "yesterday"], "is not a time"),
        (["cost", "report", "{tmp}", "--subscriptions", "events"], "TOPIC=NUMBER"),
        (["cost", "report", "{tmp}", "--html", "{tmp}/none/a.html"], "/none does not exist"),
        (["reconcile", "{tmp}"], "not a ledger"),
        (["account", "{tmp}"], "not a ledger"),
        (["account", "{tmp}", "--subscriptions", "events"], "TOPIC=NUMBER"),
        (["ledger", "compact", "{tmp}"], "not a ledger"),
        (["ledger", "show", "{tmp}"], "not a ledger"),
    ],
)
def test_bad_input_is_said_in_one_line(tmp_path, arguments, words):
    answer = pairbus(*[a.format(tmp=tmp_path) for a in arguments])
    assert answer.exit_code not in (0, 1)
    assert words in answer.output
    assert "Traceback" not in answer.output


def test_another_version_of_a_ledger_is_refused(tmp_path):
    (tmp_path / "ledger.json").write_text('{"version": 7}')
    answer = pairbus("cost", "report", str(tmp_path))
    assert "ledger of version 7" in answer.output


def test_a_price_file_with_a_hole_is_refused(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text(
        'date = 2026-01-01\ncurrency = "EUR"\n[transfer]\nper_gb = 0\n[tiers.standard]\n'
        "base_per_month = 0\nsteps = [{ from = 0, to = 13, per_million = 0 }]\n"
    )
    answer = pairbus("cost", "estimate", "--prices", str(file))
    assert "no price for operations above 13 million" in answer.output


def test_a_ledger_is_shown_and_compacted(ledger):
    shown = json.loads(pairbus("ledger", "show", ledger, "--json").output)
    assert [(row["table"], row["files"], row["rows"]) for row in shown] == [
        ("operations", 1, 1),
        ("messages", 2, 3),
    ]
    assert pairbus("ledger", "compact", ledger).exit_code == 0
    shown = json.loads(pairbus("ledger", "show", ledger, "--json").output)
    assert shown[1]["files"] == 1
    assert shown[1]["rows"] == 3


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_a_report_and_a_verdict_from_the_shell(ledger, tmp_path):
    """In processes of their own, with a session as a user gets it."""

    def shell(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "pairbus", *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    page = tmp_path / "page.html"
    done = shell(
        "cost", "report", ledger, "--html", str(page), "--rows", str(tmp_path / "rows.parquet"),
        "--json", "--master", "local[2]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # Spark says nothing
    data = json.loads(done.stdout)
    assert data["extra"]["operations"] == 2
    assert data["derived"]["operations"] == 2
    assert "<svg" in page.read_text()
    done = shell("reconcile", ledger, "--no-peek", "--master", "local[2]")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("The ledger does not balance: of 2 message(s) 1 lost or still")
    assert "m2" in done.stdout
    assert "starting Java and Spark …\nmatching messages with receipts …" in done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_one_run_accounts_for_messages_and_money(ledger, tmp_path):
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "pairbus", "account", ledger, "--no-peek", "--html", str(page),
         "--master", "local[2]"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # as `reconcile`: one message was lost
    assert done.stderr.count("starting Java and Spark") == 1
    assert "of 2 message(s) 1 lost" in done.stdout
    assert "the outage added 2 operations" in done.stdout
    assert "<svg" in page.read_text()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_a_ledger_is_watched_from_the_shell(ledger):
    watching = subprocess.Popen(
        [sys.executable, "-m", "pairbus", "cost", "watch", ledger, "--from", "2026-03-01",
         "--every", "1s", "--json", "--master", "local[2]"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        first = json.loads(watching.stdout.readline())
        assert (first["total"]["operations"], first["added"]) == (2, 2)
        assert [stage["name"] for stage in first["by_stage"]] == ["send_backlog"]
        with LedgerWriter(ledger, client_id="b", runtime=runtime_at(1_772_366_460.0)) as writer:
            writer.count("contoso", "orders", "ping", "send", messages=1, size=128)
        second = json.loads(watching.stdout.readline())
        assert (second["total"]["operations"], second["added"]) == (3, 1)
        assert second["total"]["money"] == "0.000002400000"
    finally:
        watching.send_signal(signal.SIGINT)
        rest = watching.communicate(timeout=300)
    assert rest == ("", "")
    assert watching.returncode == 0


def test_only_a_ledger_is_watched(tmp_path):
    answer = pairbus("cost", "watch", str(tmp_path))
    assert answer.exit_code == 3
    assert answer.output.count("\n") == 1
    assert "not a ledger" in answer.output
