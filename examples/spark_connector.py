"""Service Bus from Spark, cell by cell: write, browse, count, move, with an embedded broker.

Run it as a program, or paste its cells (`# %%`) into a notebook. It needs no account:

    pip install 'pairbus[spark,broker]' && python examples/spark_connector.py
"""

# %% An embedded namespace. For a real one, set CONTOSO to its connection string instead.
import os

from pairbus import broker
from pairbus.spark.session import get_session


def main() -> None:
    with broker.run("contoso") as namespace:
        namespace.create_queue("orders")
        namespace.create_queue("large-orders")
        os.environ["CONTOSO"] = namespace.connection_string
        spark = get_session("local[2]", "connector example")
        try:
            tour(spark)
        finally:
            spark.stop()


# %% The examples, with a Spark session.
def tour(spark) -> None:  # type: ignore[no-untyped-def]
    # The option names the environment variable, so no key is in the notebook, plan or log.
    contoso = {"connectionString": "env:CONTOSO"}

    # %% Write: rows become messages.
    rows = [
        (f"order-{n}", f'{{"total": {n}}}', {"country": "CH" if n % 3 else "AT"}) for n in range(9)
    ]
    orders = spark.createDataFrame(
        rows, "messageId string, body string, applicationProperties map<string,string>"
    )
    orders.write.format("servicebus").mode("append").options(**contoso, queue="orders").save()

    # %% Browse: messages are neither locked nor removed.
    browsed = spark.read.format("servicebus").options(**contoso, queue="orders").load()
    browsed.selectExpr("messageId", "string(body) AS body", "enqueuedTime").show(truncate=False)
    browsed.groupBy("applicationProperties.country").count().show()

    # %% Move: lock, filter, send to another queue, and settle the messages that were sent.
    locked = (
        spark.read.format("servicebus").options(**contoso, queue="orders", mode="peekLock").load()
    )
    large = locked.where("get_json_object(string(body), '$.total') >= 6")
    large.write.format("servicebus").mode("append").options(
        **contoso, queue="large-orders", settle="true"
    ).save()

    # %% Messages that were filtered out are not settled: they return when their locks expire.
    moved = spark.read.format("servicebus").options(**contoso, queue="large-orders").load()
    print("moved:", sorted(row.messageId for row in moved.collect()))


if __name__ == "__main__":
    main()
