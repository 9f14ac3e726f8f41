"""State on an S3 server: the driver is killed and its checkpoint lost, and no message is lost."""

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from pairbus import broker
from pairbus.syphon.state import StateDirectory
from tests.spark.cluster import kill_tree
from tests.syphon.conftest import PREFIX, Pair, backlog_message, order_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(2400),
]
EACH = 1000


def test_a_killed_driver_and_a_lost_checkpoint_lose_nothing(object_store, tmp_path):
    place = object_store.location("syphon")
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        for number in range(2):
            secondary.create_queue(
                f"{PREFIX}/{number}",
                lock_duration=dt.timedelta(seconds=20),
                max_delivery_count=2147483647,
            )
        pair = Pair(primary, secondary, 2, tmp_path)
        for queue in range(2):
            pair.fill([backlog_message("orders", n, more={"q": queue}) for n in range(EACH)], queue)

        def start(*arguments):
            return subprocess.Popen(
                [sys.executable, "-m", "pairbus", "syphon", "run", "--primary-namespace", "contoso",
                 "--queues", "2", "--master", "local[2]", "--json", "--state", place,
                 "--checkpoint", str(tmp_path / "checkpoint"), "--ledger", str(tmp_path / "ledger"),
                 "--max-messages-per-trigger", "300", *arguments],
                stdout=subprocess.PIPE,
                env={**os.environ, "PAIRBUS_PRIMARY": primary.connection_string,
                     "PAIRBUS_SECONDARY": secondary.connection_string},
            )  # fmt: skip

        syphon = start()
        state = StateDirectory(place)
        deadline = time.monotonic() + 900
        try:
            while state.progress().forwarded < 300:
                assert syphon.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)
        finally:
            kill_tree(syphon)
            syphon.stdout.close()
        assert sorted(p.name for p in (tmp_path / "checkpoint").iterdir()) == ["spark"]
        shutil.rmtree(tmp_path / "checkpoint")
        with start("--until-empty") as syphon:
            try:
                assert syphon.wait(900) == 0
                status = json.loads(syphon.stdout.read())
            finally:
                kill_tree(syphon)
        assert status["state"] == "stopped"
        assert "secret-of-the-store" not in json.dumps(status)
        got = pair.take("orders", 2 * EACH, timeout=60)
        pair.close()
    assert len({str(one.message.properties.message_id) for one in got}) == 2 * EACH
    for queue in range(2):
        assert order_of(got, queue) == list(range(EACH)), f"order of queue {queue}"
