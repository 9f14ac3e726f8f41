"""The look at the backlog queues of `wait_until_empty`, which needs no Java."""

import pytest

from pairbus import SyphonOptions, broker
from pairbus.spark.ledger import SyphonLedger
from pairbus.spark.syphon import peeking
from pairbus.syphon._sync import connections
from pairbus.syphon.setup import Setup
from tests.syphon.conftest import make_queues

pytestmark = pytest.mark.slow


def test_queues_are_peeked_again_and_again_on_one_connection(tmp_path, monkeypatch):
    opened, open_connection = [], connections.open_connection

    def count(*arguments):
        opened.append(open_connection(*arguments))
        return opened[-1]

    monkeypatch.setattr(connections, "open_connection", count)
    with broker.run("contoso-dr") as secondary:
        make_queues(secondary, 2)
        options = SyphonOptions(
            primary="Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b",  # not used
            secondary=secondary.connection_string,
            primary_namespace="contoso",
            backlog_queue_count=2,
            checkpoint=str(tmp_path),
        )
        with peeking(Setup.of(options), SyphonLedger(None, "s")) as is_empty:
            assert [is_empty() for _ in range(3)] == [True] * 3
            assert len(opened) == 1
        assert not opened[0].is_usable
