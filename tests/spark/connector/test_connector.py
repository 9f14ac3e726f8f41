"""`format("servicebus")` on real Spark against a real broker: batch and stream, read and write."""

import datetime as dt
import socket

import pytest

from pairbus import broker
from pairbus.amqp.codec import encode
from pairbus.amqp.types import Symbol, UInt
from pairbus.client import BulkConnection

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def namespace():
    with broker.run("contoso") as running:
        for name in ("in", "out", "typed", "drain", "locked", "bounded"):
            running.create_queue(name)
        running.create_topic("news")
        running.create_subscription("news", "all")
        yield running


@pytest.fixture(scope="module")
def lean(namespace):
    with BulkConnection(namespace.connection_string) as connection:
        yield connection


@pytest.fixture
def reads(spark, namespace):
    def reader(**options):
        given = {"connectionString": namespace.connection_string, **options}
        return spark.read.format("servicebus").options(**given).load()

    return reader


def message(number, **application):
    return b"".join(
        [
            b"\x00\x53\x73" + encode([f"id-{number}", None, None, "subject", None, "corr"]),
            b"\x00\x53\x74" + encode({"n": number, **application}),
            b"\x00\x53\x75" + encode(b"body-%d" % number),
        ]
    )


def count(namespace, queue):
    admin = namespace.admin_client()
    return admin.get_queue_runtime_properties(queue).active_message_count


def test_rows_become_messages_and_messages_become_rows(spark, namespace, lean, reads):
    later = dt.datetime(2030, 1, 1)  # noqa: DTZ001 - as Spark gives it back
    rows = spark.createDataFrame(
        [
            ("in", b"one", "id-1", "s", {"a": "1"}, 60000, None),
            ("in", b"two", "id-2", None, {}, None, None),
            ("typed", b"three", "id-3", None, None, None, later),
        ],
        "destination string, body binary, messageId string, sessionId string, "
        "applicationProperties map<string,string>, timeToLive long, scheduledEnqueueTime timestamp",
    )
    rows.coalesce(1).write.format("servicebus").mode("append").option(
        "connectionString", namespace.connection_string
    ).save()
    found = {row["messageId"]: row for row in reads(queue="in,typed").collect()}
    assert found["id-1"]["body"] == bytearray(b"one")
    assert found["id-1"]["sessionId"] == "s"
    assert found["id-1"]["applicationProperties"] == {"a": "1"}
    assert found["id-1"]["timeToLive"] == 60000
    assert found["id-1"]["entity"] == "in"
    assert found["id-1"]["lockToken"] is None
    assert found["id-2"]["state"] == "active"
    assert found["id-3"]["state"] == "scheduled"
    assert found["id-3"]["scheduledEnqueueTime"] == later
    assert count(namespace, "in") == 2  # browsing touched nothing
    # Taking deletes.
    taken = reads(queue="in", mode="receiveAndDelete", columns="messageId,deliveryCount").collect()
    assert sorted(row["messageId"] for row in taken) == ["id-1", "id-2"]
    assert count(namespace, "in") == 0


def test_locked_rows_are_settled_by_the_sink_and_keep_their_types(spark, namespace, lean, reads):
    odd = {"uint": UInt(7), "symbol": Symbol("s"), "list": [1, None, "x"]}
    lean.sender("locked").send_batch([message(n, **odd) for n in range(100)])
    rows = reads(queue="locked", mode="peekLock")
    rows.write.format("servicebus").mode("append").options(
        connectionString=namespace.connection_string, queue="out", settle="true"
    ).save()
    assert count(namespace, "locked") == 0
    receiver = lean.receiver("out")
    got = receiver.receive(100, max_wait=10)
    receiver.complete(got)
    assert [one.message.application_properties["n"] for one in got] == list(range(100))
    first = got[0].message.application_properties
    assert {name: first[name] for name in odd} == odd
    assert isinstance(first["uint"], UInt)
    assert isinstance(first["symbol"], Symbol)


def test_subscriptions_and_dead_letters_are_read_too(namespace, lean, reads):
    lean.sender("news").send_batch([message(1), message(2)])
    entity = "news/Subscriptions/all"
    receiver = lean.receiver(entity)
    first, _ = receiver.receive(2, max_wait=10)
    lean.management(entity).settle_each(
        [[first.lock_token]], "suspended", "Broken", "does not work"
    )
    (row,) = reads(topic="news", subscription="all", subQueue="deadLetter").collect()
    assert row["deadLetterReason"] == "Broken"
    assert row["deadLetterErrorDescription"] == "does not work"
    assert row["entity"] == "news/Subscriptions/all/$DeadLetterQueue"
    assert [r["messageId"] for r in reads(topic="news", subscription="all").collect()] == ["id-2"]


def test_a_stream_of_what_is_there_is_read_once_and_resumes(spark, namespace, lean, tmp_path):
    lean.sender("drain").send_batch([message(n) for n in range(20)])

    def run():
        stream = (
            spark.readStream.format("servicebus")
            .options(
                connectionString=namespace.connection_string,
                queue="drain",
                maxMessagesPerTrigger="8",
                columns="sequenceNumber,messageId,message",
            )
            .load()
        )
        query = (
            stream.writeStream.format("servicebus")
            .options(connectionString=namespace.connection_string, queue="out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert query.exception() is None
        return query

    query = run()
    assert len(query.recentProgress) >= 3
    assert count(namespace, "drain") == 20
    lean.sender("drain").send_batch([message(20)])
    run()
    receiver = lean.receiver("out")
    got = receiver.receive(21, max_wait=10)
    receiver.complete(got)
    assert [one.message.application_properties["n"] for one in got] == list(range(21))


def test_a_wrong_option_is_named(spark, namespace):
    with pytest.raises(Exception, match="subscription: is missing"):
        spark.read.format("servicebus").options(
            connectionString=namespace.connection_string, topic="news"
        ).load()


def test_no_secret_shows_in_plans(spark, namespace, reads, tmp_path):
    key = namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    frame = reads(queue="in")
    assert key not in frame._jdf.queryExecution().toString()  # noqa: SLF001 - PySpark shows its plans nowhere else
    assert key not in frame._jdf.queryExecution().debug().toString()  # noqa: SLF001 - PySpark shows its plans nowhere else
    with pytest.raises(Exception, match="no-such-queue: amqp:not-found") as caught:
        spark.createDataFrame([(b"x",)], "body binary").coalesce(1).write.format("servicebus").mode(
            "append"
        ).options(connectionString=namespace.connection_string, queue="no-such-queue").save()
    assert key not in str(caught.value)


@pytest.fixture(scope="module")
def nobody():
    """A namespace that nobody answers for."""
    with socket.socket() as bound:  # it does not listen, and keeps the port from others
        bound.bind(("127.0.0.1", 0))
        yield (
            f"Endpoint=sb://127.0.0.1:{bound.getsockname()[1]};SharedAccessKeyName=a;"
            "SharedAccessKey=b;UseDevelopmentEmulator=true"
        )


@pytest.mark.parametrize("mode", ["peek", "peekLock", "receiveAndDelete"])
def test_a_batch_read_of_an_unreachable_namespace_fails(spark, nobody, mode):
    options = {"connectionString": nobody, "queue": "in", "mode": mode}
    with pytest.raises(Exception, match="amqp:socket-error"):
        spark.read.format("servicebus").options(**options).load().collect()


def available_now(spark, source, folder, rows):
    """Run a query over the messages that are available now; append their ids to `rows`."""
    stream = spark.readStream.format("servicebus").options(
        **source, columns="messageId", stateLocation=str(folder / "state")
    )
    query = (
        stream.load()
        .writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query


def test_a_query_of_the_available_messages_fails_if_the_namespace_is_unreachable(
    spark, nobody, tmp_path
):
    source = {"connectionString": nobody, "queue": "in", "mode": "peekLock"}
    with pytest.raises(Exception, match="servicebus: in: cannot be read: amqp:socket-error"):
        available_now(spark, source, tmp_path, [])


def test_a_query_of_the_available_messages_ends_when_its_queues_are_empty(
    spark, namespace, lean, tmp_path
):
    lean.sender("bounded").send_batch([message(n) for n in range(20)])
    rows = []
    source = {
        "connectionString": namespace.connection_string, "queue": "bounded",
        "mode": "receiveAndDelete", "maxMessagesPerTrigger": "8",
    }  # fmt: skip
    query = available_now(spark, source, tmp_path, rows)
    assert not query.isActive
    assert [row["messageId"] for row in rows] == [f"id-{n}" for n in range(20)]
