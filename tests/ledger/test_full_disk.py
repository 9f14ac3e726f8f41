"""A disk that is really full, below a paired client that really sends."""

import json
import subprocess
import sys
import textwrap

import pytest

from pairbus import broker

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

# A limit on the size of files: every write to the disk fails, and sockets go on.
CLIENT = """
    import json, logging, resource, signal, sys
    from azure.servicebus import ServiceBusClient, ServiceBusMessage
    from pairbus import SendAvailabilityPairedNamespaceOptions, pair_namespace
    from pairbus.administration import admin_client

    primary, secondary, place = sys.argv[1:]
    lines = []
    class Lines(logging.Handler):
        def emit(self, record):
            lines.append([record.levelname, record.getMessage()])
    logging.getLogger("pairbus.ledger").addHandler(Lines())
    options = SendAvailabilityPairedNamespaceOptions(
        secondary=ServiceBusClient.from_connection_string(secondary),
        secondary_admin=admin_client(secondary), primary_namespace="contoso",
        backlog_queue_count=1, ledger=place,
    )
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    told = {}
    with pair_namespace(ServiceBusClient.from_connection_string(primary), options) as client:
        ledger = client._lifecycle.pair.ledger
        assert ledger.flush()
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
        with client.get_queue_sender("orders") as sender:
            for number in range(3):
                sender.send_messages(ServiceBusMessage(b"x"))
                client.force_failover("orders")
                sender.send_messages(ServiceBusMessage(b"x", message_id=str(number)))
                client.force_primary("orders")
                told.setdefault("flushes", []).append(ledger.flush())
        told["failures"] = ledger.failures
        told["status"] = client.status().ledger_problem
        told["log"] = list(lines)
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    print(json.dumps(told))
"""


def test_a_full_disk_stops_no_paired_send_and_nothing_is_missing_afterwards(tmp_path):
    place = tmp_path / "ledger"
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CLIENT),
             primary.connection_string, secondary.connection_string, str(place)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sent = primary.operations["orders"]["send"]["messages"]
        held = secondary.operations["contoso/x-servicebus-transfer/0"]["send"]["messages"]
    assert (sent, held) == (3, 3)
    told = json.loads(done.stdout)
    assert told["flushes"] == [False] * 3
    assert told["failures"] == 3
    assert "File too large" in told["status"]
    assert [level for level, _ in told["log"]] == ["WARNING"]
    # once there is room again, all of it is written
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.concat_tables([pq.read_table(f) for f in (place / "messages").glob("*.parquet")])
    assert sorted(rows["message_id"].to_pylist()) == ["0", "1", "2"]
    assert not list(place.rglob("*.tmp"))
