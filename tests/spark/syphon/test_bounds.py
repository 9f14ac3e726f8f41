"""Bounded drains, a transform, a dry run: each a short query on real Spark."""

import time
from dataclasses import dataclass
from decimal import Decimal

import pytest

from pairbus.exceptions import SyphonError
from pairbus.reports.price_lists import load_prices
from tests.syphon.conftest import PREFIX, backlog_message

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]


@pytest.fixture(scope="module", autouse=True)
def destinations(pair):
    for name in ("orders", "other", "masked"):
        pair.primary.create_queue(name)


def transform(messages):
    """Re-route one destination, dead-letter one message, let another be gone."""
    from pyspark.sql import functions as F

    number = F.col("applicationProperties")["n"].cast("int")
    return (
        messages.withColumn(
            "destination",
            F.when(F.col("destination") == "orders", "masked").otherwise(F.col("destination")),
        )
        .withColumn(
            "verdict",
            F.when(number == 1, "dead-letter").when(number == 2, "complete").otherwise("deliver"),
        )
        .withColumn("reason", F.when(number == 1, "DroppedByTransform"))
        .withColumn("description", F.when(number == 1, "number one"))
    )


@dataclass
class FailsAtFirst:
    """A transform that fails so often that Spark gives the query up, and then does nothing."""

    file: str
    times: int

    def __call__(self, messages):
        from pyspark.sql import functions as F

        judge = F.udf(self.judge, "string", useArrow=False).asNondeterministic()
        return messages.withColumn("verdict", judge("verdict"))

    def judge(self, verdict):
        with open(self.file, "a+") as file:
            file.write("x")
            file.seek(0)
            if len(file.read()) <= self.times:
                raise RuntimeError("not yet")
        return verdict


@pytest.mark.long
def test_a_query_that_spark_gave_up_starts_again_or_says_why_and_loses_nothing(
    pair, spark, tmp_path, monkeypatch
):
    from pairbus.spark import handle as handle_module
    from pairbus.spark import syphon

    pair.primary.create_queue("late")
    pair.fill([backlog_message("late", n) for n in range(5)])
    # Spark tries a task four times and gives the query up; the syphon does not, unless told to.
    fails = FailsAtFirst(str(tmp_path / "tries"), times=9)
    options = pair.options(transform=fails, checkpoint=str(tmp_path / "checkpoint"))
    monkeypatch.setattr(handle_module, "RESTARTS", 0)
    handle = syphon.start_syphon(options, spark=spark, bounds=syphon.Bounds(until_empty=True))
    with pytest.raises(SyphonError, match=r"the query ended: .*not yet"):
        handle.wait(200)
    monkeypatch.undo()
    handle = syphon.start_syphon(options, spark=spark, bounds=syphon.Bounds(until_empty=True))
    assert handle.wait(200)
    assert pair.numbers("late", 5) == [0, 1, 2, 3, 4]
    assert len((tmp_path / "tries").read_text()) > 9


def test_a_dry_run_counts_and_touches_nothing(pair, spark):
    from pairbus.reports.dry_run import dry_run

    pair.fill([backlog_message("orders", n) for n in range(3)])
    pair.fill([backlog_message("other", 3), backlog_message(None, 4)], index=1)
    result = dry_run(pair.options(), spark=spark)
    rows = {(r["destination"], r["verdict"], r["reason"]): r["messages"] for r in result["rows"]}
    assert rows == {
        ("orders", "deliver", None): 3,
        ("other", "deliver", None): 1,
        (None, "dead-letter", "NoDestination"): 1,
    }
    assert result["operations"] == {
        "receive_backlog": 5, "send_primary": 4, "settle": 5, "total": 14,
    }  # fmt: skip
    cost = result["cost"]
    assert cost["operations"] == Decimal("0.80") * 14 / 1_000_000  # the step above 13 million
    size = sum(row["bytes"] for row in result["rows"])
    assert cost["transfer"] == load_prices().transfer_per_gb * size / 2**30
    assert cost["total"] == cost["operations"] + cost["transfer"]
    assert pair.count("orders") == 0


def test_a_transform_reroutes_drops_and_dead_letters_until_empty(pair, spark):
    from pairbus.spark.syphon import Bounds, start_syphon

    name = f"{transform.__module__}:transform"
    assert ":" in name
    handle = start_syphon(
        pair.options(transform=transform), spark=spark, bounds=Bounds(until_empty=True)
    )
    assert handle.wait(120)
    assert pair.numbers("masked", 1) == [0]
    assert pair.numbers("other", 1) == [3]
    letters = {(reason, n) for reason, _, n in pair.dead_letters(0, 1)}
    assert letters == {("DroppedByTransform", 1)}
    assert handle.status()["state"] == "stopped"
    handle.stop()  # twice is fine


def test_a_drain_ends_after_so_many_messages_and_says_what_is_left(pair, spark):
    from pairbus.spark.syphon import Bounds, start_syphon

    pair.fill([backlog_message("orders", n) for n in range(50)])
    handle = start_syphon(pair.options(), spark=spark, bounds=Bounds(max_messages=20))
    assert handle.wait(120)
    assert len(pair.take("orders", 20)) == 20
    assert pair.count("orders") == 0
    # It is paused, and stays so over a restart; that ends when its time is over.
    handle.pause()
    handle = start_syphon(pair.options(), spark=spark, bounds=Bounds(max_duration=2))
    assert handle.status()["state"] == "paused"
    assert handle.wait(120)
    assert pair.count("orders") == 0
    # A snapshot takes the rest, and not what comes later; what is later stays.
    handle = start_syphon(pair.options(), spark=spark, bounds=Bounds(snapshot=True))
    time.sleep(0.05)
    pair.fill([backlog_message("orders", 99)])
    handle.resume()
    assert handle.wait(120)
    assert pair.numbers("orders", 30) == list(range(20, 50))
    assert pair.count("orders") == 0
    assert pair.connect(pair.secondary).management(f"{PREFIX}/0").peek(0, 10)


NOWHERE = "Endpoint=sb://no-such-thing.invalid/;SharedAccessKeyName=a;SharedAccessKey=b"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"primary": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is not set"),
        ({"transform": "no.such:thing"}, "cannot be imported"),
        ({"primary": NOWHERE, "primary_namespace": "contoso"}, "there is no such namespace"),
        ({"secondary": NOWHERE}, "there is no such namespace"),
        ({"ca_file": "/no/such.pem"}, "ca_file: there is no file /no/such.pem"),
        ({"primary_namespace": None}, "is an address"),
        ({"backlog_queue_count": 1, "primary_namespace": "fabrikam"}, "no backlog queues"),
    ],
)
def test_what_is_wrong_is_one_clear_line(pair, changes, told):
    from pairbus.spark.syphon import start_syphon

    with pytest.raises(SyphonError, match=told) as caught:
        start_syphon(pair.options(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_wrong_key_is_one_clear_line_before_spark_starts(pair, side):
    from pairbus.spark.syphon import start_syphon

    text = getattr(pair, side).connection_string
    key = text.partition("SharedAccessKey=")[2].partition(";")[0]
    with pytest.raises(SyphonError, match=f"{side} .*: the key or token is refused"):
        start_syphon(pair.options(**{side: text.replace(key, "d3Jvbmc=")}))


def test_one_namespace_cannot_be_both(pair):
    from pairbus.spark.syphon import start_syphon

    with pytest.raises(SyphonError, match="are the same namespace"):
        start_syphon(pair.options(primary=pair.secondary.connection_string))


def returns_nothing(messages):
    return None


def names_no_column(messages):
    return messages.withColumn("x", messages["nothing"])


def drops_the_token(messages):
    return messages.drop("lockToken")


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        (returns_nothing, "returns_nothing failed: AttributeError: 'NoneType'"),
        (names_no_column, r"names_no_column failed: AnalysisException: .*nothing"),
        (drops_the_token, r"drops_the_token removed the column\(s\) lockToken"),
    ],
)
def test_wrong_transform_is_one_clear_line(spark, transform, told):
    from pairbus.spark.query_options import apply_transform

    rows = spark.createDataFrame([(b"1", "orders")], "lockToken binary, destination string")
    with pytest.raises(SyphonError, match=told) as caught:
        apply_transform(transform, rows)
    assert "\n" not in str(caught.value)
