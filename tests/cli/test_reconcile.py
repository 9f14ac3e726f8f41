"""`pairbus reconcile` before Spark starts."""

import pytest

from pairbus.cli import reconcile
from pairbus.cli.errors import UserError
from pairbus.cli.progress import Steps
from pairbus.monitoring.backlog_queues import BacklogQueue
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.monitoring.monitor import utc_now
from pairbus.monitoring.operations import OperationsSource


def test_operations_of_a_peek_that_fails_are_recorded(tmp_path, monkeypatch):
    queue = BacklogQueue("contoso/x-servicebus-transfer/0", True, 1, 0, 1)
    monkeypatch.setattr("pairbus.monitoring.backlog_queues.find", lambda _pair: [queue])
    secondary = Endpoint(
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    )
    pair = Pair(secondary=secondary, explicit_namespace="contoso")
    ledger = str(tmp_path / "ledger")
    with (
        pytest.raises(UserError, match="peeking the backlog queues"),
        reconcile.peeked_backlog(pair, ledger, Steps(None)),
    ):
        pass
    (found,) = OperationsSource(ledger).read(utc_now()).all
    assert (found.namespace, found.stage, found.billable) == ("127.0.0.1:1", "management", 1)
