"""The records that cross a process or a file come back as they were written."""

import dataclasses
import json

import pytest

from pairbus.syphon.deferred import DeferredNumbers
from pairbus.syphon.rates import AdaptiveRate
from pairbus.syphon.records import (
    BlockedRecord,
    Control,
    HeldMessage,
    HeldRecord,
    OperationCount,
    QueueRead,
    TaskReport,
)
from pairbus.syphon.status_records import ProgressRecord

HELD = HeldMessage("b/0", "aa" * 16, 7, "orders", 1060.5)
RECORDS = [
    Control(True, 10.0, 20.0),
    QueueRead(3, 300, True, True, 60.0, 1700000000000, 2),
    TaskReport(
        forwarded=3,
        size=300,
        dead_lettered={"Rejected": 1},
        operations=(OperationCount("contoso", "settle", "b/0", "completed", 1, 3, 0, 3),),
        read={"b/0": QueueRead(3, 300)},
        held=(HELD,),
        failed={"orders": "amqp:internal-error"},
        delivered=("other",),
        uncertain=("b/1",),
        stalled="ledger: disk full",
        busy=2,
        sending=AdaptiveRate(300.0, 120.0, 130.0, 1234.5),
        has_ended=True,
        deferred=(DeferredNumbers("orders", "b/0", (1, 2, 5)),),
        undeferred={"b/0": (7, 9)},
        locked=("b/1",),
    ),
    HeldRecord((HELD,), {"orders": "amqp:internal-error"}, {"gone": 1000.5}, ("old",)),
    BlockedRecord(
        {"orders": ("b/0", 7), "other": None}, 1234.5, ("old",), ("orders",), {"b/0": (1, 9)},
        AdaptiveRate(None, 9.0),
    ),
    ProgressRecord(
        1, 2, {"Rejected": 3}, 4, 5, {"orders": "x"}, {"orders": 5}, 6, "why", True, True, True,
        True, True, ("b/0",), ("b/1",), 7, 667.0, "primary", 8, "disk full",
    ),
    DeferredNumbers("orders", "b/0", (1, 2, 3, 7)),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives_its_json_form_with_every_field_set(record):
    default = type(record)()
    unset = [
        field.name
        for field in dataclasses.fields(record)
        if getattr(record, field.name) == getattr(default, field.name)
    ]
    assert not unset, "set every field, so that a forgotten one is noticed"
    data = dataclasses.asdict(record) if isinstance(record, Control) else record.to_json()
    assert type(record).from_json(json.loads(json.dumps(data))) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_of_another_version_is_read_with_defaults(record):
    assert type(record).from_json({"of a later version": 1}) == type(record)()


def test_deferred_numbers_in_a_report_of_an_earlier_version_are_read():
    report = TaskReport.from_json({"deferred": [["orders", "b/0", [[1, 2], [5, 5]]]]})
    assert report.deferred == (DeferredNumbers("orders", "b/0", (1, 2, 5)),)


def test_the_keys_of_the_files_are_those_of_earlier_versions():
    assert list(QueueRead().to_json()) == [
        "messages", "bytes", "more", "done", "lock", "oldest", "busy"
    ]  # fmt: skip
    assert {"bytes", "doubtful", "ended"} <= TaskReport().to_json().keys()
    keys = {"bytes", "begun", "empty", "listening", "drained", "released", "doubtful"}
    assert keys <= ProgressRecord().to_json().keys()
    assert TaskReport(undeferred={"b/0": (1, 2, 4)}).to_json()["undeferred"] == {
        "b/0": [[1, 2], [4, 4]]
    }
