"""The alert rules in `deploy/prometheus`, run by `promtool`.

`data/outage.yml` has the metrics of a real outage (see `record_outage.py`); the other cases are
series of the same names. Where there is no promtool (`make test` fetches it) the tests are skipped.
"""

import datetime as dt
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pairbus.monitoring.checks import Thresholds, check_snapshot, worst
from pairbus.monitoring.metrics import STATUS_METRICS
from pairbus.monitoring.records import QueueDepth
from pairbus.monitoring.snapshot import Facts, assemble
from pairbus.status import PairStatus
from pairbus.syphon.status_records import SyphonStatus

DEPLOY = Path(__file__).parent.parent.parent / "deploy" / "prometheus"
RULES = DEPLOY / "pairbus.rules.yml"
RECORDED = yaml.safe_load((Path(__file__).parent / "data" / "outage.yml").read_text())
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
PAIR = 'pair="contoso>contoso-dr"'
CALM = {f"pairbus_source_problems{{{PAIR}}}": 0, f'pairbus_syphon_state{{{PAIR},state="idle"}}': 1}


@pytest.fixture(scope="module")
def promtool():
    fetched = Path(sys.prefix) / "promtool" / "usr" / "bin" / "promtool"
    found = shutil.which("promtool") or (str(fetched) if fetched.exists() else None)
    if found is None:
        pytest.skip("LEFT OUT: the alert rules are not tested, there is no promtool on PATH")

    def run(*arguments: str) -> None:
        done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def check(promtool, folder, interval, series, expected) -> None:
    """Play series to the rules, and compare the alerts that fire at each time."""
    case = {
        "interval": interval,
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": FIRING,
                "eval_time": f"{seconds}s",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)
                ],
            }
            for seconds, names in expected
        ],
    }
    file = folder / "test.yml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": [case]}
        )
    )
    promtool("test", "rules", str(file))


def at(event: str, after: int) -> int:
    return RECORDED["events"][event] + after


def test_each_cause_of_a_real_outage_has_one_alert(promtool, tmp_path):
    check(
        promtool,
        tmp_path,
        RECORDED["interval"],
        RECORDED["input_series"],
        [
            (at("healthy", 90), []),
            (at("outage", 60), ["PairbusFailedOver"]),
            # The syphon is stalled and the backlog is old: both because of the outage.
            (at("outage", 345), ["PairbusFailedOver"]),
            (at("recovery", 165), []),
            (at("second outage", 45), ["PairbusFailedOver"]),
            (at("second recovery, without a syphon", 405), ["PairbusSyphonSilent"]),
            (at("syphon started again", 105), []),
            (at("a message without a destination", 75), ["PairbusDeadLetters"]),
        ],
    )


@pytest.mark.parametrize(
    ("series", "seconds", "alert"),
    [
        ({f"pairbus_unprotected_clients{{{PAIR}}}": 2}, 360, "PairbusUnprotected"),
        (
            {
                f'pairbus_clients{{{PAIR},state="silent"}}': 1,
                f'pairbus_clients{{{PAIR},state="reporting"}}': 1,
            },
            360,
            "PairbusClientSilent",
        ),
        (
            {
                f'pairbus_clients{{{PAIR},state="silent"}}': 2,
                f'pairbus_clients{{{PAIR},state="reporting"}}': 0,
            },
            360,
            "PairbusAllClientsSilent",
        ),
        (
            {
                f'pairbus_syphon_state{{{PAIR},state="idle"}}': 0,
                f'pairbus_syphon_state{{{PAIR},syphon="a",state="silent"}}': 1,
            },
            360,
            "PairbusSyphonSilent",
        ),
        ({f"pairbus_source_problems{{{PAIR}}}": 1}, 360, "PairbusBlind"),
        (
            {
                f'pairbus_syphon_state{{{PAIR},syphon="a",state="stalled"}}': 1,
                f'pairbus_backlog_queue_oldest_seconds{{{PAIR},queue="q"}}': 10,
            },
            360,
            "PairbusSyphonStalled",
        ),
        # An idle syphon and an old message: somebody paused it, or it does not see the queue.
        (
            {f'pairbus_backlog_queue_oldest_seconds{{{PAIR},queue="q"}}': 301},
            180,
            "PairbusBacklogOld",
        ),
        ({"no_such_metric": 1, **dict.fromkeys(CALM)}, 360, "PairbusMetricsMissing"),
    ],
)
def test_alert_fires_when_its_condition_lasts(promtool, tmp_path, series, seconds, alert):
    played = [
        {"series": name, "values": f"{value}+0x60"}
        for name, value in {**CALM, **series}.items()
        if value is not None
    ]
    check(promtool, tmp_path, "15s", played, [(30, []), (seconds, [alert])])


def test_outage_of_an_hour_is_critical(promtool, tmp_path):
    entity = f'{PAIR},entity="orders"'
    played = [
        {"series": f"pairbus_failed_over{{{entity}}}", "values": "1+0x80"},
        {"series": f"pairbus_entity_failing_seconds{{{entity}}}", "values": "0+60x80"},
        *({"series": name, "values": f"{value}+0x80"} for name, value in CALM.items()),
    ]
    expected = [
        (3540, ["PairbusFailedOver"]),
        (3720, ["PairbusFailedOver", "PairbusOutageLong"]),
    ]
    check(promtool, tmp_path, "60s", played, expected)


def test_dropped_rows_of_the_ledger_are_reported(promtool, tmp_path):
    dropped = f'pairbus_ledger_dropped_rows_total{{{PAIR},client="a"}}'
    played = [
        {"series": dropped, "values": "0+0x10 0+5x10"},
        *({"series": name, "values": f"{value}+0x40"} for name, value in CALM.items()),
    ]
    expected = [(120, []), (240, ["PairbusLedgerDropsRows"])]
    check(promtool, tmp_path, "15s", played, expected)


def test_configuration_of_prometheus_is_valid(promtool):
    promtool("check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml"))


def test_every_metric_of_the_rules_exists():
    known = {metric.exposed_name for metric in STATUS_METRICS}
    rules = [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    used = {name for rule in rules for name in re.findall(r"pairbus_\w+", rule["expr"])}
    assert used
    assert used <= known


def test_documentation_lists_every_alert():
    page = (DEPLOY.parent.parent / "docs" / "howto" / "watch-a-pair.md").read_text()
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert f"| `{rule['alert']}` | {rule['labels']['severity']} |" in page


def test_messages_that_nobody_forwards_are_critical_after_an_hour(promtool, tmp_path):
    played = [
        {
            "series": f'pairbus_backlog_queue_oldest_seconds{{{PAIR},queue="q"}}',
            "values": "0+60x80",
        },
        {"series": f"pairbus_source_problems{{{PAIR}}}", "values": "0+0x80"},
    ]
    expected = [(3540, ["PairbusNoSyphon"]), (3900, ["PairbusBacklogLate", "PairbusNoSyphon"])]
    check(promtool, tmp_path, "60s", played, expected)


def client(phase="healthy", age=0.0, **changes):
    entities = [{"entity": "orders", "phase": phase, "since": NOW}]
    updated_at = NOW - dt.timedelta(seconds=age)
    status = {"client_id": f"c{age}", "state": "open", "updated_at": updated_at}
    return PairStatus.from_json({**status, "entities": entities, **changes})


def syphon(state="idle", age=0.0, **changes):
    at = (NOW - dt.timedelta(seconds=age)).isoformat()
    return SyphonStatus.from_json({"id": "s", "state": state, "updated_at": at, **changes})


def waiting(seconds):
    oldest = NOW - dt.timedelta(seconds=seconds)
    return [QueueDepth(path="q", active=1, dead_letters=0, oldest=oldest)]


CONDITIONS = {
    "PairbusFailedOver": ("entities", {"statuses": [client("failed_over")]}),
    "PairbusOutageLong": (
        "oldest",
        {"statuses": [client("failed_over")], "backlog": waiting(3601)},
    ),
    "PairbusUnprotected": ("protection", {"statuses": [client(unprotected="no queues")]}),
    "PairbusNoSyphon": ("syphon", {"statuses": [client()]}),
    "PairbusSyphonSilent": ("syphon", {"statuses": [syphon(age=3000)]}),
    "PairbusSyphonStalled": ("syphon", {"statuses": [syphon("stalled", stalled="ledger: full")]}),
    "PairbusBacklogOld": ("oldest", {"backlog": waiting(301)}),
    "PairbusBacklogLate": ("oldest", {"backlog": waiting(3601)}),
    "PairbusDeadLetters": (
        "dead letters",
        {"backlog": [QueueDepth(path="q", active=0, dead_letters=1)]},
    ),
    "PairbusAllClientsSilent": ("clients", {"statuses": [client(age=3000)]}),
    "PairbusClientSilent": ("clients", {"statuses": [client(age=3000), client()]}),
    "PairbusLedgerDropsRows": ("source", {"statuses": [client(ledger_dropped_rows=5)]}),
    "PairbusBlind": ("source", {"status_problem": "not a ledger"}),
}


def test_alert_has_the_level_that_the_check_gives_to_the_same_condition():
    rules = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {
        rule["alert"]: rule["labels"]["severity"] for group in rules for rule in group["rules"]
    }
    del alerts["PairbusMetricsMissing"]  # there is nothing that could be checked
    found = {}
    for alert, (name, facts) in CONDITIONS.items():
        complete = {"backlog": [QueueDepth(path="q", active=0, dead_letters=0)], **facts}
        findings = check_snapshot(assemble(Facts(now=NOW, **complete)))
        found[alert] = worst([finding for finding in findings if finding.check == name])
    assert alerts == {
        alert: "warning" if level == "unknown" else level for alert, level in found.items()
    }


def test_thresholds_of_the_alerts_are_those_of_the_check():
    rules = yaml.safe_load(RULES.read_text())["groups"]
    exprs = {rule["alert"]: rule["expr"] for group in rules for rule in group["rules"]}
    limits = Thresholds()
    assert f"> {limits.age_warning:g}" in exprs["PairbusBacklogOld"]
    assert f"> {limits.age_critical:g}" in exprs["PairbusBacklogLate"]
    assert f"> {limits.age_critical:g}" in exprs["PairbusOutageLong"]
    assert limits.dead_critical == 1
