"""A change of target is recorded before Spark starts."""

from dataclasses import replace

import pytest

from pairbus import broker
from pairbus.options import SyphonOptions
from pairbus.spark.syphon import record_target
from pairbus.syphon.records import HeldMessage, HeldRecord
from pairbus.syphon.setup import Setup
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import ProgressRecord
from tests.syphon.conftest import PREFIX, Pair, backlog_message, make_queues

QUEUE = f"{PREFIX}/0"


@pytest.mark.slow
def test_what_the_former_target_refused_says_nothing_about_the_new_one(tmp_path):
    state = StateDirectory(tmp_path / "state").create()
    with broker.run("contoso-dr") as secondary:
        make_queues(secondary, 1)
        pair = Pair(None, secondary, 1, tmp_path)
        pair.fill([backlog_message("orders", n) for n in range(3)])
        options = SyphonOptions(
            primary="Endpoint=sb://contoso.example/;SharedAccessKeyName=a;SharedAccessKey=b",
            secondary=secondary.connection_string, checkpoint=str(tmp_path),
            ledger=str(tmp_path / "ledger"), backlog_queue_count=1,
        )  # fmt: skip
        record_target(Setup.of(options), state)

        # Given: a send to the first destination ended without an answer, and the syphon was killed
        numbers = [one.sequence_number for one in pair.connect(secondary).management(QUEUE).peek(0)]
        held = (HeldMessage(QUEUE, "aa" * 16, numbers[1], "orders", 0.0),)
        refused = {"orders": "com.microsoft:timeout", "bills": "amqp:not-found"}
        state.write_held(HeldRecord(held, refused, {"bills": 1.0}, ("invoices",)))
        state.write_progress(ProgressRecord())

        # When: the target changes
        new = "Endpoint=sb://contoso-new.example/;SharedAccessKeyName=a;SharedAccessKey=b"
        record_target(Setup.of(replace(options, target=new)), state)
        pair.close()

    # Then: the former target may have what was held, and no destination of the new one is missing
    assert state.target().former == "contoso"
    assert state.target().handed_out == {QUEUE: numbers[1]}
    assert state.held() == HeldRecord(held)
