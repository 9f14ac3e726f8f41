"""A drain through Spark that begins with the state directory and ledger of version 0.1.0."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pairbus import broker
from pairbus.client import BulkConnection
from tests.syphon.conftest import PREFIX, make_queues

DATA = Path(__file__).parent / "data"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_backlog_of_version_0_1_is_drained_from_its_state_and_reconciled(tmp_path):
    for name in ("state", "ledger"):
        shutil.copytree(DATA / name, tmp_path / name)
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        make_queues(secondary, 2)
        primary.create_queue("bills")
        rows = [json.loads(line) for line in (DATA / "backlog.jsonl").read_text().splitlines()]
        with BulkConnection(secondary.connection_string) as connection:
            sender = connection.sender(f"{PREFIX}/0")
            messages = [base64.b64decode(row["payload"]) for row in rows]
            assert all(outcome.is_accepted for outcome in sender.send_batch(messages))
        environment = {
            **os.environ, "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
            "PAIRBUS_PRIMARY_NAMESPACE": "contoso", "PAIRBUS_LEDGER": str(tmp_path / "ledger"),
        }  # fmt: skip
        status = pairbus(
            environment, "syphon", "run", "--queues", "2", "--until-empty", "--json",
            "--master", "local[2]", "--checkpoint", str(tmp_path / "state"),
        )  # fmt: skip
        assert status["forwarded"] == 10  # in this run; version 0.1.0 forwarded 23
        with primary.client() as client:
            found = client.get_queue_receiver("bills").peek_messages(max_message_count=20)
        assert [message.message_id for message in found] == [f"bill-{n}" for n in range(10)]
        account = pairbus(environment, "reconcile", str(tmp_path / "ledger"), "--json")
    assert (account["totals"]["once"], account["totals"]["lost"]) == (33, 0)


def pairbus(environment, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pairbus", *arguments],
        env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
