"""One syphon on real Spark between two real brokers, and all kinds of messages through it."""

import contextlib
import datetime as dt
import decimal
import json
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from pairbus.amqp.codec import encode
from pairbus.envelope.sdk import wrap
from pairbus.syphon.state import StateDirectory
from tests.syphon.conftest import PREFIX, backlog_message

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]


MANY = 50_000  # for a destination that takes none, at the head of the queue


@pytest.fixture(scope="module")
def syphon(pair, spark):
    from pairbus.spark.syphon import start_syphon

    options = pair.options(long_poll=30, max_messages_per_trigger=10_000)
    with ThreadPoolExecutor(1) as another:  # than the thread that made the session
        handle = another.submit(start_syphon, options, spark=spark).result()
    yield handle
    handle.stop()


@pytest.fixture(scope="module")
def clients(pair):
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as primary,
        ServiceBusClient.from_connection_string(pair.secondary.connection_string) as secondary,
    ):
        yield primary, secondary


def eventually(ask, good, timeout=30.0):
    """Ask until the answer is good."""
    deadline = time.monotonic() + timeout
    while not good(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    return answer


def progress(syphon):
    """The progress that the coordinator wrote last."""
    return StateDirectory(syphon.checkpoint).read("progress.json")


def receipts(pair, syphon):
    """The receipts that this syphon wrote."""
    files = (pair.folder / "ledger" / "messages").glob("*.parquet")
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    own = syphon.status()["id"]
    return [row for row in rows if row["client_id"] == own]


def settled(pair, syphon):
    """Wait until the backlog is empty, by the broker's own counts, and all of it is counted."""
    assert syphon.wait_until_empty(60)
    status = eventually(
        syphon.status, lambda status: counted(status) >= len(receipts(pair, syphon))
    )
    assert counted(status) == len(receipts(pair, syphon))


def counted(status):
    return status["forwarded"] + sum(status["dead_lettered"].values())


@pytest.mark.sdk
def test_every_property_and_type_comes_home_as_it_was(pair, syphon, clients):
    primary, secondary = clients
    pair.primary.create_queue("typed")
    properties = {
        "text": "ä",
        "bytes": b"text",
        "int": 42,
        "long": {"TYPE": "LONG", "VALUE": 2**40},
        "negative": -5,
        "double": 1.5,
        "yes": True,
        "when": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "uuid": uuid.UUID(int=7),
        "short": {"TYPE": "SHORT", "VALUE": 3},
        "ubyte": {"TYPE": "UBYTE", "VALUE": 3},
        "ulong": {"TYPE": "ULONG", "VALUE": 2**60},
        "symbol": {"TYPE": "SYMBOL", "VALUE": "sym"},
        "none": None,
    }
    messages = [
        ServiceBusMessage(
            b"data",
            message_id="id-1",
            correlation_id="corr",
            subject="subject",
            content_type="application/json",
            reply_to="answers",
            reply_to_session_id="rs",
            to="somewhere",
            partition_key="key",
            time_to_live=dt.timedelta(minutes=5),
            application_properties=properties,
        ),
        AmqpAnnotatedMessage(
            value_body={"a": [1, "two", None], "b": decimal.Decimal("1.5").as_integer_ratio()},
            header={"durable": True, "priority": 9},
            properties={"message_id": "id-2", "user_id": b"me"},
            annotations={"x-mine": "kept"},
            footer={"f": 1},
        ),
        AmqpAnnotatedMessage(sequence_body=[[1, 2], ["x"]], properties={"message_id": "id-3"}),
        AmqpAnnotatedMessage(data_body=[b"two", b" parts"], properties={"message_id": "id-4"}),
    ]
    # The same messages sent straight to the primary are what to compare with.
    with primary.get_queue_sender("typed") as sender, primary.get_queue_receiver("typed") as reader:
        for message in messages:
            sender.send_messages(message)
        direct = [next(iter(reader)) for _ in messages]
        for message in direct:
            reader.complete_message(message)
        with secondary.get_queue_sender(f"{PREFIX}/0") as backlog:
            for message in messages:
                backlog.send_messages(wrap(message, "typed", now=int(time.time() * 1000)))
        forwarded = [next(iter(reader)) for _ in messages]
        for message in forwarded:
            reader.complete_message(message)
    for one, other in zip(direct, forwarded, strict=True):
        for name in (
            "message_id", "correlation_id", "subject", "content_type", "reply_to",
            "reply_to_session_id", "to", "partition_key", "session_id", "time_to_live",
            "application_properties", "body_type",
        ):  # fmt: skip
            assert getattr(other, name) == getattr(one, name), name
        raw, expected = other.raw_amqp_message, one.raw_amqp_message
        if one.body_type is AmqpMessageBodyType.VALUE:
            assert raw.body == expected.body
        else:
            assert list(raw.body) == list(expected.body)
        assert raw.footer == expected.footer
        assert (raw.header.durable, raw.header.priority) == (
            expected.header.durable,
            expected.header.priority,
        )
        assert raw.properties.user_id == expected.properties.user_id
        mine = {k: v for k, v in raw.annotations.items() if not k.startswith(b"x-opt-")}
        assert mine == {
            k: v for k, v in expected.annotations.items() if not k.startswith(b"x-opt-")
        }


def test_sessions_arrive_in_order(pair, syphon):
    pair.primary.create_queue("sessions", requires_session=True)
    pair.fill([backlog_message("sessions", n, session=f"s{n % 3}") for n in range(300)])
    for session in range(3):
        got = pair.numbers("sessions", 100, session_id=f"s{session}")
        assert got == list(range(session, 300, 3))


def test_scheduled_messages_keep_their_time(pair, syphon):
    pair.primary.create_queue("later")
    soon = int((time.time() + 4) * 1000)
    pair.fill([backlog_message("later", 1, scheduled=soon), backlog_message("later", 2)])
    got = pair.take("later", 2)
    assert [one.message.application_properties["n"] for one in got] == [2, 1]
    assert got[1].enqueued_time >= soon - 50


def test_a_hundred_destinations_share_one_backlog_queue(pair, syphon):
    for number in range(100):
        pair.primary.create_queue(f"d{number}")
    pair.fill([backlog_message(f"d{n % 100}", n) for n in range(1000)], index=1)
    for number in (0, 50, 99):
        assert pair.numbers(f"d{number}", 10) == list(range(number, 1000, 100))
    settled(pair, syphon)


def test_topics_are_destinations_too(pair, syphon):
    pair.primary.create_topic("news")
    pair.primary.create_subscription("news", "all")
    pair.fill([backlog_message("news", n) for n in range(10)])
    assert pair.numbers("news/Subscriptions/all", 10) == list(range(10))


def test_what_cannot_be_delivered_is_dead_lettered_with_its_reason(pair, syphon):
    pair.primary.create_queue("fine")
    pair.fill(
        [
            backlog_message(None, 1),
            backlog_message("no-such-queue", 2),
            backlog_message("fine", 3, more={"x-ms-timetolive": "soon"}),
            backlog_message("fine", 4),
        ]
    )
    assert pair.numbers("fine", 1) == [4]
    letters = {n: (reason, text) for reason, text, n in pair.dead_letters(0, 3)}
    assert {n: reason for n, (reason, _) in letters.items()} == {
        1: "NoDestination",
        2: "DestinationNotFound",
        3: "WrongAliasType",
    }
    assert "amqp:not-found" in letters[2][1]
    assert "x-ms-timetolive" in letters[3][1]
    settled(pair, syphon)
    assert syphon.status()["dead_lettered"]["NoDestination"] >= 1


def test_a_message_that_cannot_be_decoded_is_dead_lettered_and_the_next_is_delivered(pair, syphon):
    pair.primary.create_queue("sound")
    before = syphon.status()["dead_lettered"].get("WrongAliasType", 0)
    wrong = b"\x00\x53\x74\xc1\x09\x02\xa1\x05x-ms-\x3f" + b"\x00\x53\x75" + encode(b"x")
    pair.fill([wrong, backlog_message("sound", 2)])
    assert pair.numbers("sound", 1) == [2]
    settled(pair, syphon)
    assert syphon.status()["dead_lettered"]["WrongAliasType"] == before + 1
    receiver = pair.connect(pair.secondary).receiver(f"{PREFIX}/0/$DeadLetterQueue")
    (letter,) = receiver.receive(1, max_wait=30)
    assert letter.payload.endswith(wrong)
    receiver.complete([letter])
    receiver.close()


def test_one_bad_message_does_not_hold_up_its_batch(pair, syphon):
    # A queue with sessions refuses messages without one.
    pair.primary.create_queue("picky", requires_session=True)
    messages = [
        backlog_message("picky", n, session=None if n in (7, 150) else "s") for n in range(200)
    ]
    pair.fill(messages)
    expected = [n for n in range(200) if n not in (7, 150)]
    assert pair.numbers("picky", 198, session_id="s") == expected
    assert sorted(n for _, _, n in pair.dead_letters(0, 2)) == [7, 150]


@pytest.mark.long  # waits for real back-offs; the planner's tests show the rule with a clock
def test_a_disabled_destination_waits_alone_and_then_gets_all_in_order(pair, syphon):
    pair.primary.create_queue("shut")
    pair.primary.create_queue("behind")
    admin = pair.primary.admin_client()
    shut = admin.get_queue("shut")
    shut.status = "SendDisabled"
    admin.update_queue(shut)
    pair.fill([backlog_message("shut", n) for n in range(MANY)])
    pair.fill([backlog_message("behind", n) for n in range(10)])
    assert pair.numbers("behind", 10, timeout=120) == list(range(10))
    status = eventually(syphon.status, lambda status: status["waiting"] > 0)
    assert "shut" in status["waiting_for"]
    shut.status = "Active"
    admin.update_queue(shut)
    pair.fill([backlog_message("shut", n) for n in range(MANY, MANY + 10)])
    assert pair.numbers("shut", MANY + 10, timeout=120) == list(range(MANY + 10))
    settled(pair, syphon)


def test_a_primary_that_fails_in_the_middle_is_waited_for(pair, syphon):
    pair.primary.create_queue("orders")
    pair.primary.faults.reject("com.microsoft:server-busy", entity="orders", nth=2, times=1)
    pair.fill([backlog_message("orders", n, body=b"x" * 1000) for n in range(3000)])
    got = pair.numbers("orders", 3000, timeout=90)
    assert got == list(range(3000))
    settled(pair, syphon)


def test_pause_holds_and_resume_goes_on(pair, syphon):
    pair.primary.create_queue("held")
    syphon.pause()
    assert syphon.status()["state"] == "paused"
    time.sleep(1.5)  # a micro-batch that was planned before may still run
    pair.fill([backlog_message("held", 1)])
    assert pair.take("held", 1, timeout=2) == []
    syphon.resume()
    assert pair.numbers("held", 1) == [1]


def jobs(spark):
    """How many jobs Spark has run."""
    context = spark.sparkContext
    page = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs"
    with urllib.request.urlopen(page) as answer:
        return len(json.load(answer))


def files(pair):
    """What Spark and the sink wrote, and when."""
    places = [pair.folder / "checkpoint" / "spark", pair.folder / "checkpoint" / "journal",
              pair.folder / "ledger" / "messages"]  # fmt: skip
    found = {}
    for path in (path for place in places for path in place.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a file that was renamed since
            found[str(path)] = path.stat().st_mtime_ns
    return found


def is_triggering(spark):
    return any(query.status["isTriggerActive"] for query in spark.streams.active)


def receives(pair, *kinds):
    return sum(
        counted.get(kind, {}).get("calls", 0)
        for entity, counted in pair.secondary.operations.items()
        for kind in kinds or ("receive", "receive-empty")
        if "x-servicebus-transfer" in entity
    )


def test_idle_is_one_long_poll_per_queue_no_job_and_no_file_and_a_message_rings(
    pair, syphon, spark, record_property
):
    settled(pair, syphon)
    pair.primary.create_queue("bell")
    eventually(lambda: progress(syphon)["in_flight"], lambda n: n == 0)
    before = None
    while before != (before := (jobs(spark), files(pair))) or is_triggering(spark):
        time.sleep(1.0)  # the last trigger that found something has not ended
    polls = receives(pair)
    time.sleep(2.5)  # some triggers pass
    assert (jobs(spark), files(pair)) == before
    assert receives(pair) - polls <= pair.queues  # a poll may have ended, and the next begun
    assert syphon.status()["state"] == "idle"
    # The first message wakes it: the poll that is under way receives it, and then a reader does.
    received, sent = receives(pair, "receive"), time.time()
    pair.fill([backlog_message("bell", 1)])
    (one,) = pair.take("bell", 1, timeout=30)
    assert receives(pair, "receive") - received >= 2
    assert jobs(spark) > before[0]
    record_property("seconds_to_wake", round(one.enqueued_time / 1000 - sent, 2))


def test_several_syphons_share_a_backlog_and_nothing_is_lost_or_doubled(
    pair, syphon, spark, tmp_path
):
    from pairbus.spark.syphon import start_syphon

    pair.primary.create_queue("shared")
    settled(pair, syphon)
    rate, started = 250, time.monotonic()
    already = syphon.status()["forwarded"]
    syphon.limit(max_messages_per_second=rate)  # so that each has to leave something to the other
    other = start_syphon(
        pair.options(checkpoint=str(tmp_path / "other"), max_messages_per_second=rate), spark=spark
    )
    try:
        eventually(lambda: progress(other).get("listening"), bool)
        for index in range(2):
            messages = [
                backlog_message("shared", n) for n in range(1000 * index, 1000 * index + 1000)
            ]
            pair.fill(messages, index=index)
        numbers = pair.numbers("shared", 2000, timeout=120)
        assert sorted(numbers) == list(range(2000))
        settled(pair, syphon)
        elapsed = time.monotonic() - started
        # Each counts what it did a moment after it is done.
        parts = eventually(
            lambda: [syphon.status()["forwarded"] - already, other.status()["forwarded"]],
            lambda parts: sum(parts) >= 2000,
        )
        assert sum(parts) == 2000
        assert all(0 < part <= rate * (elapsed + 2) for part in parts), (parts, elapsed)
        assert pair.count("shared") == 0
    finally:
        other.stop()
        syphon.limit()


def test_a_ledger_that_is_away_stalls_the_drain_and_nothing_is_sent_without_a_receipt(pair, syphon):
    pair.primary.create_queue("proven")
    settled(pair, syphon)
    ledger, away = pair.folder / "ledger", pair.folder / "away"
    ledger.rename(away)
    ledger.write_text("not a folder")
    try:
        pair.fill([backlog_message("proven", n) for n in range(5)])
        status = eventually(syphon.status, lambda status: status["state"] == "stalled")
        assert status["stalled"].startswith("ledger: ")
        assert pair.take("proven", 1, timeout=0.5) == []
    finally:
        ledger.unlink()
        away.rename(ledger)
    assert pair.numbers("proven", 5, timeout=90) == list(range(5))
    settled(pair, syphon)


def test_every_forwarded_message_has_a_receipt(pair, syphon):
    settled(pair, syphon)
    status, rows = syphon.status(), receipts(pair, syphon)
    forwarded = [row for row in rows if row["event"] == "forwarded"]
    assert len(forwarded) == status["forwarded"]
    assert all(row["message_id"] and row["backlog_queue"].startswith(PREFIX) for row in forwarded)
    dead = [row for row in rows if row["event"] == "dead_lettered"]
    assert len(dead) == sum(status["dead_lettered"].values())
