"""Rows of a backlog, restored: columns, verdicts, and both policies for the time to live."""

import datetime as dt
from itertools import product

import pytest
from pyspark.sql import functions as F

from pairbus.envelope.fields import EXPIRED, MAX_EXPIRY, MAX_TTL, NO_DESTINATION, WRONG_ALIAS_TYPE
from pairbus.spark.restore import restore

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENTERED = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
SCHEMA = (
    "n int, enqueuedTime timestamp, receivedTime timestamp, aliasPath string, "
    "aliasSessionId string, aliasTimeToLive bigint, aliasScheduledEnqueueTime timestamp, "
    "aliasProblem string"
)


def backlog(spark, *rows):
    """Rows that were received ten seconds after they entered the backlog."""
    received = ENTERED + dt.timedelta(seconds=10)
    names = ("path", "session", "ttl", "at", "wrong")
    filled = [
        (n, ENTERED, received, *(row.get(name) for name in names)) for n, row in enumerate(rows)
    ]
    return spark.createDataFrame(filled, SCHEMA)


def restored(frame, **options):
    return restore(frame, **options).orderBy("n").collect()


def test_values_of_aliases_are_back_in_their_columns(spark):
    at = ENTERED + dt.timedelta(days=1)
    frame = backlog(spark, {"path": " orders ", "session": "s", "ttl": 60_000, "at": at})
    [row] = restored(frame)
    assert (row.verdict, row.destination, row.sessionId) == ("deliver", "orders", "s")
    assert row.timeToLive == 60_000
    assert row.scheduledEnqueueTime.astimezone(dt.UTC) == at
    assert not [name for name in row.asDict() if name.startswith("alias")]
    assert "absoluteExpiryTime" not in row  # it counts from the time of forwarding


def test_time_in_the_backlog_is_deducted_and_the_original_expiry_stays(spark):
    frame = backlog(
        spark, {"path": "q", "ttl": 60_000}, {"path": "q", "ttl": 10_000}, {"path": "q"},
        {"path": "q", "ttl": (2**63 - 1) // 10_000},
    )  # fmt: skip
    kept, expired, without, endless = restored(frame, ttl_policy="deduct")
    assert (kept.verdict, kept.timeToLive) == ("deliver", 50_000)
    expiry = kept.absoluteExpiryTime.astimezone(dt.UTC)
    assert expiry == ENTERED + dt.timedelta(seconds=60)
    assert (expired.verdict, expired.reason) == ("dead-letter", "ExpiredInBacklog")
    assert (without.verdict, without.timeToLive) == ("deliver", None)
    assert without.absoluteExpiryTime is None
    assert endless.verdict == "deliver"


def expected(path, life, problem, wait, *, entered, policy):
    """The reason, time to live and expiry of one message, by an account of the test's own."""
    expiry = None
    if policy == "deduct" and life is not None:
        life = min(max(life, 0), MAX_EXPIRY)
        expiry = min(entered + life, MAX_EXPIRY)
        life -= max(wait, 0)
    if problem is not None:
        reason = WRONG_ALIAS_TYPE
    elif not (path or "").strip(" "):
        reason = NO_DESTINATION
    else:
        reason = EXPIRED if life is not None and life <= 0 else None
    return reason, life, expiry


@pytest.mark.parametrize("policy", ["full", "deduct"])
def test_verdict_and_times_are_right_for_every_combination_of_values(spark, policy):
    entered = int(ENTERED.timestamp() * 1000)
    lives = (None, -(2**63), -1, 0, 1, 10_000, 10_001, MAX_TTL, MAX_EXPIRY, 2**63 - 1)
    waits = (-5_000, 0, 10_000, MAX_TTL)  # a clock may run behind the broker's
    cases = list(product((None, "", "  ", " q "), lives, (None, "x-ms-path is null"), waits))
    rows = [
        (n, ENTERED, ENTERED + dt.timedelta(milliseconds=wait), path, None, life, None, problem)
        for n, (path, life, problem, wait) in enumerate(cases)
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    if policy == "full":
        frame = frame.withColumn("absoluteExpiryTime", F.lit(None).cast("timestamp"))

    # As milliseconds: the driver's datetime would lose the last years in some time zones.
    expiry = F.unix_millis("absoluteExpiryTime").alias("expiry")
    found = restore(frame, ttl_policy=policy).select("n", "reason", "timeToLive", expiry)

    assert [tuple(row)[1:] for row in found.orderBy("n").collect()] == [
        expected(*case, entered=entered, policy=policy) for case in cases
    ]


def test_message_that_cannot_be_restored_is_dead_lettered_with_its_reason(spark):
    frame = backlog(spark, {}, {"path": " "}, {"wrong": "x-ms-path is null"})
    rows = restored(frame)
    assert {row.verdict for row in rows} == {"dead-letter"}
    assert [row.reason for row in rows] == ["NoDestination", "NoDestination", "WrongAliasType"]
    assert [row.description for row in rows] == [
        "there is no x-ms-path", "there is no x-ms-path", "x-ms-path is null",
    ]  # fmt: skip


def test_destination_that_the_sender_chose_is_kept_for_the_ledger(spark):
    [row] = restored(backlog(spark, {"path": "orders"}), keep_original=True)
    assert row.originalDestination == "orders"
