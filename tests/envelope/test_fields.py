"""The envelope on plain records: `restore` is the inverse of `wrap`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.types import Described, Int, Long, Symbol, Timestamp, UInt
from pairbus.envelope.fields import (
    MAX_EXPIRY,
    MAX_TTL,
    PATH,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    TIME_TO_LIVE,
    Aliases,
    AliasTypeError,
    Fields,
    parse_alias,
    peek_aliases,
    restore,
    wrap,
)

NOW = 2_000_000_000_000
moments = st.integers(1, 4_000_000_000_000)
fields = st.builds(
    Fields,
    group_id=st.none() | st.text(),
    ttl=st.none() | st.integers(0, MAX_TTL),
    absolute_expiry_time=st.none() | moments,
    creation_time=st.none() | moments,
    scheduled_enqueue_time=st.none() | moments,
)


@given(fields, st.text(min_size=1), moments)
def test_restored_fields_are_the_original_ones(original, path, later):
    waiting, aliases = wrap(original, path, now=NOW)
    home = restore(waiting, aliases, now=later)

    assert aliases.path == path
    assert home.group_id == original.group_id
    assert home.ttl == original.ttl
    assert home.scheduled_enqueue_time == original.scheduled_enqueue_time
    if original.ttl:
        assert home.absolute_expiry_time == later + original.ttl
        assert home.creation_time == (original.creation_time or NOW)
    else:
        assert home.absolute_expiry_time == original.absolute_expiry_time
        assert home.creation_time == original.creation_time


@given(fields, st.text(min_size=1))
def test_nothing_expires_or_delays_a_wrapped_message(original, path):
    waiting, _ = wrap(original, path, now=NOW)

    assert not waiting.ttl
    assert waiting.group_id is None
    assert waiting.scheduled_enqueue_time is None
    assert not original.ttl or waiting.absolute_expiry_time is None


def test_expiry_counts_from_the_time_of_forwarding():
    home = restore(Fields(creation_time=5), Aliases("q", time_to_live=30_000), now=NOW)
    assert (home.ttl, home.absolute_expiry_time, home.creation_time) == (30_000, NOW + 30_000, 5)


def test_with_deducted_time_the_original_expiry_stays():
    home = restore(
        Fields(), Aliases("q", time_to_live=10_000), now=NOW + 500, expires_at=NOW + 10_000
    )
    assert (home.ttl, home.absolute_expiry_time) == (10_000, NOW + 10_000)


@pytest.mark.parametrize(
    ("time_to_live", "ttl", "expiry"),
    [
        (MAX_TTL + 1, MAX_TTL, NOW + MAX_TTL + 1),  # a header holds 49 days
        ((2**63 - 1) // 10_000, MAX_TTL, MAX_EXPIRY),  # TimeSpan.MaxValue of .NET
        (-5, 0, NOW - 5),
    ],
)
def test_time_to_live_out_of_range_is_clamped(time_to_live, ttl, expiry):
    home = restore(Fields(), Aliases("q", time_to_live=time_to_live), now=NOW)
    assert (home.ttl, home.absolute_expiry_time) == (ttl, expiry)


TIMESPAN = Symbol("com.microsoft:timespan")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (PATH, "orders", "orders"),
        (SESSION_ID, "", ""),
        (TIME_TO_LIVE, 60_000, 60_000),
        (TIME_TO_LIVE, Long(60_000), 60_000),
        (TIME_TO_LIVE, Described(TIMESPAN, 600_000_000), 60_000),
        (TIME_TO_LIVE, Described(TIMESPAN, 2**63 - 1), 922_337_203_685_477),
        (SCHEDULED_ENQUEUE_TIME, Timestamp(5), 5),
    ],
)
def test_alias_is_read_by_its_type(name, value, expected):
    assert parse_alias(name, value) == expected


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (PATH, b"orders", "x-ms-path is of type bytes"),
        (PATH, Symbol("orders"), "x-ms-path is of type Symbol"),
        (PATH, None, "x-ms-path is null"),
        (SESSION_ID, 3, "x-ms-sessionid is of type int"),
        (TIME_TO_LIVE, UInt(1), "x-ms-timetolive is of type UInt"),
        (TIME_TO_LIVE, Int(1), "x-ms-timetolive is of type Int"),
        (TIME_TO_LIVE, True, "x-ms-timetolive is of type bool"),
        (TIME_TO_LIVE, "1", "x-ms-timetolive is of type str"),
        (TIME_TO_LIVE, Described(Symbol("com.microsoft:uri"), 1), "of type Described"),
        (TIME_TO_LIVE, Described(TIMESPAN, "1"), "of type Described"),
        (SCHEDULED_ENQUEUE_TIME, 5, "x-ms-scheduledenqueuetimeutc is of type int"),
    ],
)
def test_alias_of_another_type_is_named(name, value, problem):
    with pytest.raises(AliasTypeError, match=problem):
        parse_alias(name, value)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (None, (None, None)),
        ({"x-ms-path": "orders"}, ("orders", None)),
        ({b"x-ms-path": b"orders", b"x-ms-sessionid": "s"}, ("orders", "s")),
        ({"x-ms-path": 3, "x-ms-sessionid": b"\xff"}, ("3", "\ufffd")),
    ],
)
def test_peeked_aliases_are_shown_whatever_their_type(properties, expected):
    assert peek_aliases(properties) == expected
