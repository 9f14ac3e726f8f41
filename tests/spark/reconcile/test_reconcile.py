"""The reconciliation: the books balance if and only if nothing was lost and nothing doubled."""

import datetime as dt
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.ledger import LedgerError, LedgerWriter, Store, files, write_receipts
from pairbus.reports import reconcile_job as reconcile
from pairbus.reports.cost_report import cost_report
from pairbus.reports.ledger_tables import read_table, stream_table
from pairbus.reports.prefilter import closed_verdicts, in_open_buckets, open_buckets, screen
from pairbus.reports.price_lists import load_prices
from pairbus.reports.reconciliation import balance
from pairbus.runtime import ThreadRuntime

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]

QUEUE = "contoso/x-servicebus-transfer/0"
START = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
WAITING_SCHEMA = (
    "message_id string, destination string, session_id string, backlog_queue string, "
    "sequence_number bigint, size bigint, enqueued_at timestamp, dead_letter boolean"
)


def clock_runtime(clock):
    """Threads as usual, and the time that a test wants."""
    runtime = ThreadRuntime()
    runtime.time = clock
    return runtime


def message(number, destination="orders", **more):
    return {
        "message_id": f"m{number}",
        "destination": destination,
        "backlog_queue": QUEUE,
        "size": 100,
        **more,
    }


def backlog(place, rows, *, client="app", start=START):
    """Record rows as a paired client does, ten of them in each minute and file."""
    now = [start.timestamp()]
    writer = LedgerWriter(str(place), client_id=client, runtime=clock_runtime(lambda: now[0]))
    for index in range(0, len(rows), 10):
        part = rows[index : index + 10]
        writer.count(
            "contoso-dr", QUEUE, "send_backlog", "send",
            messages=len(part), size=100 * len(part), billable=len(part),
        )  # fmt: skip
        writer.backlogged(part)
        assert writer.flush()
        now[0] += 60
    writer.close()
    return writer


def forward(place, rows, event="forwarded"):
    write_receipts(
        str(place),
        [
            {
                "event": event,
                "at": START + dt.timedelta(hours=1, milliseconds=n),
                "sequence_number": n,
                **row,
            }
            for n, row in enumerate(rows)
        ],
    )


def frame(spark, rows):
    return spark.createDataFrame(
        [
            (
                r["message_id"], r["destination"], None, QUEUE, r.get("sequence_number"), 100,
                None, r.get("dead_letter", False),
            )
            for r in rows
        ],
        WAITING_SCHEMA,
    )  # fmt: skip


def test_totals_count_every_destination(spark, tmp_path):
    writer = LedgerWriter(str(tmp_path), client_id="app")
    writer.backlogged([message(n, f"queue-{n:05}") for n in range(10_001)])
    writer.close()
    found = balance(spark, str(tmp_path))
    assert found.totals["lost"] == 10_001


def test_books_balance_when_everything_came_home(spark, tmp_path):
    sent = [message(n) for n in range(25)]
    backlog(tmp_path, sent)
    forward(tmp_path, sent)
    books = balance(spark, str(tmp_path))
    assert books.balanced
    assert books.complete
    assert books.verdict == "The ledger balances: 25 message(s), 25 delivered once, none lost."
    assert books.totals["once"] == 25


def test_what_was_lost_or_doubled_is_named(spark, tmp_path):
    sent = [message(n, "Orders" if n % 2 else "orders") for n in range(20)]
    backlog(tmp_path, sent)
    forward(tmp_path, [*sent[:7], *sent[8:], sent[3]])
    books = balance(spark, str(tmp_path))
    assert not books.balanced
    assert [row["message_id"] for row in books.lost] == ["m7"]
    assert [row["message_id"] for row in books.more_than_once] == ["m3"]
    assert books.totals["copies"] == 1
    # a path is the same in any case
    assert [row["expected"] for row in books.by_destination] == [20]
    assert "1 lost, 1 delivered more than once" in books.verdict
    assert "were not peeked" in books.verdict


def test_dead_letters_expiry_and_what_waits_are_no_loss(spark, tmp_path):
    sent = [message(n, "orders" if n < 5 else "events") for n in range(10)]
    backlog(tmp_path, sent)
    forward(tmp_path, sent[:4])
    forward(tmp_path, [{**sent[4], "reason": "DestinationNotFound"}], "dead_lettered")
    forward(tmp_path, [{**sent[5], "reason": "TTLExpiredException"}], "dead_lettered")
    gone = [message(n, "masked") for n in (10, 11)]
    backlog(tmp_path, gone, client="other")
    forward(tmp_path, [{**gone[0], "reason": "CompletedByTransform"}], "completed")
    # the last one is in a dead-letter queue, though no receipt says so
    waiting = frame(spark, [*sent[6:9], {**sent[9], "dead_letter": True}, gone[1]])
    books = balance(spark, str(tmp_path), waiting)
    assert books.balanced
    places = {row["destination"]: row for row in books.by_destination}
    assert places["orders"]["once"] == 4
    assert places["orders"]["dead_lettered"] == 1
    assert places["events"]["expired"] == 1
    assert places["events"]["waiting"] == 3
    assert places["events"]["dead_lettered"] == 1
    assert (places["masked"]["completed"], places["masked"]["waiting"]) == (1, 1)
    assert "1 completed unsent" in books.verdict


def test_a_client_that_died_with_unwritten_rows_is_no_loss(spark, tmp_path):
    sent = [message(n) for n in range(12)]
    backlog(tmp_path, sent[:10])
    forward(tmp_path, sent[:11])
    books = balance(spark, str(tmp_path), frame(spark, sent[11:]))
    assert books.balanced
    assert books.totals["unrecorded"] == 2
    assert sorted(row["message_id"] for row in books.unrecorded) == ["m10", "m11"]


def test_a_message_that_is_forwarded_and_not_yet_settled_is_delivered(spark, tmp_path):
    backlog(tmp_path, [message(1)])
    forward(tmp_path, [message(1)])
    books = balance(spark, str(tmp_path), frame(spark, [message(1)]))
    assert books.balanced
    assert (books.totals["once"], books.totals["waiting"]) == (1, 0)
    assert books.totals["unsettled"] == 1


def test_the_same_id_sent_twice_is_two_messages(spark, tmp_path):
    backlog(tmp_path, [message(1), message(1), message(2)])
    forward(tmp_path, [message(1), message(1), message(2)])
    books = balance(spark, str(tmp_path))
    assert books.balanced
    assert books.totals["once"] == 3


def test_order_within_a_session_is_looked_at(spark, tmp_path):
    lane = [message(n, session_id="s") for n in range(6)]
    other = [message(n, "events", session_id="s") for n in range(6, 8)]
    backlog(tmp_path, [*lane, *other])
    # by their numbers in the backlog: 0 1 3 2 4, then 1 again (a copy), then 5
    order = [0, 1, 3, 2, 4, 1, 5]
    write_receipts(
        str(tmp_path),
        [
            {
                **lane[n],
                "event": "forwarded",
                "sequence_number": n,
                "at": START + dt.timedelta(seconds=position),
            }
            for position, n in enumerate(order)
        ],
    )
    forward(tmp_path, other)
    books = balance(spark, str(tmp_path))
    assert [row["message_id"] for row in books.out_of_order] == ["m2"]
    places = {row["destination"]: row["out_of_order"] for row in books.by_destination}
    assert places == {"orders": 1, "events": 0}


def test_ledgers_that_overlap_or_repeat_count_nothing_twice(spark, tmp_path):
    sent = [message(n) for n in range(30)]
    backlog(tmp_path / "a", sent)
    forward(tmp_path / "a", sent)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    some = sorted((tmp_path / "b" / "messages").glob("*.parquet"))
    some[0].unlink()
    shutil.copy(some[1], some[1].with_name("again.parquet"))
    # a file that overlaps others in part, as no part of pairbus writes it
    rows = [files.read_rows(Store(str(tmp_path / "a")), f"messages/{p.name}") for p in some[:2]]
    merged = pa.concat_tables([rows[0].slice(0, 5), rows[1].slice(0, 5)])
    Store(str(tmp_path / "b")).write_whole("messages/partial.parquet", files.encode(merged))
    books = balance(spark, [str(tmp_path / "a"), str(tmp_path / "b")])
    assert books.balanced
    assert books.totals["once"] == 30
    assert any("repeat" in note for note in books.notes)


def test_a_missing_minute_is_named(spark, tmp_path):
    sent = [message(n) for n in range(30)]
    writer = backlog(tmp_path, sent)
    forward(tmp_path, sent)
    gone = sorted((tmp_path / "messages").glob("app*.parquet"))[1]
    gone.unlink()
    books = balance(spark, str(tmp_path))
    assert books.balanced
    assert not books.complete
    assert books.totals["unrecorded"] == 10
    assert any(f"10 messages row(s) of {writer.writer} between" in note for note in books.notes)
    [minute] = books.missed_minutes
    assert minute["minute"] == START + dt.timedelta(minutes=1)
    assert (minute["counted"], minute["noted"]) == (10, 0)
    assert books.verdict.endswith("but rows of the ledger are missing.")


def test_the_last_minute_of_a_client_is_missed_by_comparing_the_tables(spark, tmp_path):
    sent = [message(n) for n in range(20)]
    backlog(tmp_path, sent)
    forward(tmp_path, sent)
    max((tmp_path / "messages").glob("app*.parquet")).unlink()
    books = balance(spark, str(tmp_path))
    assert not books.complete
    assert len(books.missed_minutes) == 1


def test_a_receipt_that_is_missing_is_not_called_a_certain_loss(spark, tmp_path):
    sent = [message(n) for n in range(20)]
    backlog(tmp_path, sent)
    forward(tmp_path, sent[:10])
    forward(tmp_path, sent[10:15])
    forward(tmp_path, sent[15:])
    sorted((tmp_path / "messages").glob("syphon*.parquet"), key=lambda p: p.name)[1].unlink()
    books = balance(spark, str(tmp_path), frame(spark, []))
    assert not books.balanced
    assert books.totals["lost"] == 5
    assert not books.complete
    assert "without a receipt" in books.verdict


def test_books_in_an_object_store_are_read_by_the_workers(spark, object_store):
    """Spark as pip installs it knows no object store; its Python workers do."""
    place = object_store.location("books/of/contoso")
    sent = [message(n) for n in range(25)]
    backlog(place, sent)
    forward(place, sent[1:])
    books = balance(spark, place)
    assert [row["message_id"] for row in books.lost] == ["m0"]
    assert (books.totals["once"], books.complete) == (24, True)
    assert books.locations == ("s3://key:***@books/books/of/contoso",)
    report = cost_report(spark, place, load_prices())
    operations = {line.name[0]: line.operations for line in report.by_stage}
    assert operations == {"send_backlog": 25, "receive_primary": 24, "settle": 24}
    with pytest.raises(LedgerError, match="needs Spark's connector for s3"):
        stream_table(spark, place, "operations")


# What can become of one message: was it recorded by its sender, how often was it forwarded, and
# where is it now. A message that nobody recorded and that left no trace is in no book.
fates = st.tuples(
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from(["nowhere", "dead", "expired", "waiting"]),
).filter(lambda fate: fate[0] or fate[1] or fate[2] != "nowhere")
histories = st.lists(st.lists(fates, min_size=1, max_size=8), min_size=60, max_size=120)


@pytest.mark.long
@settings(max_examples=3)  # of 60 to 120 histories
@given(histories)
def test_books_balance_exactly_when_nothing_was_lost_or_doubled(spark, tmp_path_factory, many):
    """Each history is a destination of its own, so that one run of the job judges them all."""
    place = tmp_path_factory.mktemp("ledger")
    sent, home, aside, held = [], [], [], []
    bad = {}
    for index, history in enumerate(many):
        name = f"d{index}"
        bad[name] = Counter()
        for number, (recorded, forwarded, where) in enumerate(history):
            row = message(number, name)
            sent += [row] * recorded
            home += [row] * forwarded
            aside += [{**row, "reason": "Expired" if where == "expired" else "TooLarge"}] * (
                where in ("dead", "expired")
            )
            held += [row] * (where == "waiting")
            bad[name]["lost"] += recorded and not forwarded and where == "nowhere"
            bad[name]["more_than_once"] += forwarded > 1
            bad[name]["unrecorded"] += not recorded
    backlog(place, sent)
    forward(place, home)
    forward(place, aside, "dead_lettered")
    for number, file in enumerate(sorted((place / "messages").glob("*.parquet"))[::3]):
        shutil.copy(file, file.with_name(f"copy{number}.parquet"))
    books = balance(spark, str(place), frame(spark, held))
    judged = {row["destination"]: row for row in books.by_destination}
    for name, truth in bad.items():
        found = {kind: judged[name][kind] for kind in ("lost", "more_than_once", "unrecorded")}
        assert found == {kind: truth[kind] for kind in found}
        assert judged[name]["expected"] == len(many[int(name[1:])])
    assert books.balanced == (not any(b["lost"] + b["more_than_once"] for b in bad.values()))
    # What the screen says of closed buckets is what a look at every message says. With two buckets
    # for a destination, closed ones hold several messages, and so do open ones.
    messages, _ = read_table(spark, str(place), "messages")
    waiting = frame(spark, held)
    screened = screen(messages, waiting, buckets=2)
    closed = reconcile.by_destination(closed_verdicts(screened))
    numbers = open_buckets(screened)
    rest = [in_open_buckets(rows, screened, numbers, buckets=2) for rows in (messages, waiting)]
    told = reconcile.by_destination(reconcile.verdicts(reconcile.tally(*rest)))
    by_screen = reconcile.by_destination(closed.unionByName(told))
    by_message = reconcile.by_destination(reconcile.verdicts(reconcile.tally(messages, waiting)))
    assert sorted(by_screen.collect()) == sorted(by_message.collect())
    assert 0 < screened.where("open").count() < screened.count()


@pytest.fixture
def compiled(spark):
    """Queries compiled as they are outside these tests: worth it for a million rows."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = [spark.conf.get(name) for name in names]
    for name, value in zip(names, ("true", "FALLBACK"), strict=True):
        spark.conf.set(name, value)
    yield
    for name, value in zip(names, before, strict=True):
        spark.conf.set(name, value)


@pytest.mark.usefixtures("compiled")
@pytest.mark.long
def test_one_lost_in_a_million_is_found_and_named(spark, tmp_path):
    count, gone = 1_000_000, 765_432
    store = Store.create(str(tmp_path))
    ids = pa.array([f"order-{n}" for n in range(count)])
    for event in ("backlogged", "forwarded"):
        names = ids if event == "backlogged" else pa.concat_arrays([ids[:gone], ids[gone + 1 :]])
        rows = len(names)
        table = files.to_table(
            "messages",
            {
                "writer": pa.array([event]).take(pa.array([0] * rows)),
                "sequence": pa.array(range(rows)),
                "event": pa.array([event]).take(pa.array([0] * rows)),
                "at": pa.array([START]).take(pa.array([0] * rows)),
                "client_id": pa.array(["app"]).take(pa.array([0] * rows)),
                "message_id": names,
                "destination": pa.array(["orders"]).take(pa.array([0] * rows)),
                "backlog_queue": pa.array([QUEUE]).take(pa.array([0] * rows)),
            },
        )
        store.write_whole(f"messages/{event}.parquet", files.encode(table))
    books = balance(spark, str(tmp_path), frame(spark, []))
    assert not books.balanced
    assert books.totals["lost"] == 1
    assert books.totals["once"] == count - 1
    assert [row["message_id"] for row in books.lost] == [f"order-{gone}"]
    assert Path(tmp_path, "ledger.json").exists()
