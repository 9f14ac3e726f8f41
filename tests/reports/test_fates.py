"""The rules of reconcile and cost, over plain numbers."""

from collections import Counter

import pytest

from pairbus.pricing import Rules
from pairbus.reports.fates import charged, fate
from simulation.ledger import tallies


@pytest.mark.parametrize(
    ("tally", "expected"),
    [
        ({"b": 1, "f": 1}, {"once": 1}),
        ({"b": 1, "f": 3}, {"more_than_once": 1, "copies": 2}),
        ({"b": 1}, {"lost": 1}),
        ({"f": 1}, {"once": 1, "unrecorded": 1}),
        ({"b": 1, "d": 1}, {"dead_lettered": 1}),
        ({"b": 1, "e": 1, "wd": 1}, {"expired": 1}),
        ({"b": 2, "c": 1, "w": 1}, {"completed": 1, "waiting": 1}),
        ({"b": 1, "f": 1, "w": 1}, {"once": 1, "unsettled": 1}),
    ],
)
def test_fate_of_a_message_follows_from_the_numbers_of_its_rows(tally, expected):
    found = {name: number for name, number in fate(Counter(tally)).items() if number}
    assert found == {"expected": max(1, tally.get("b", 0)), **expected}


def test_rows_are_counted_by_destination_and_id():
    row = {"destination": "Orders", "message_id": "a", "backlog_queue": "q", "reason": None}
    rows = [
        {**row, "event": "backlogged", "sequence_number": None},
        {**row, "event": "forwarded", "sequence_number": 1, "destination": "orders"},
        {**row, "event": "dead_lettered", "sequence_number": 2, "message_id": None},
        {**row, "event": "dead_lettered", "sequence_number": 3, "reason": "TTLExpiredException"},
    ]
    assert tallies(rows) == {
        ("orders", "a"): {"b": 1, "f": 1, "e": 1},
        ("orders", "\0#q#2"): {"d": 1},
    }


@pytest.mark.parametrize(
    ("stage", "rules", "expected"),
    [
        ("send_primary", Rules(), (10, 2)),
        ("send_backlog", Rules(batches="batch"), (2, 2)),
        ("idle_poll", Rules(), (10, 0)),
        ("idle_poll", Rules(empty_polls=False), (0, 0)),
        ("ping", Rules(), (11, 10)),
        ("ping", Rules(failed_pings=False), (10, 10)),
    ],
)
def test_row_of_operations_is_charged_by_the_rules(stage, rules, expected):
    row = {"stage": stage, "billable": 10, "billable_batched": 2, "tried": 11}
    assert charged(row, rules) == expected
