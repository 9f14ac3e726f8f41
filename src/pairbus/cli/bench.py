"""`pairbus bench`: what sending, failing over and draining do on this machine."""

import logging

import click

from pairbus.cli.errors import require
from pairbus.cli.output import emit, json_option
from pairbus.cli.tables import Column, Table


@click.command("bench")
@json_option
@click.option("--messages", default=2000, show_default=True, type=click.IntRange(10),
              help="How many for each figure.")  # fmt: skip
@click.option("--size", default=1024, show_default=True, type=click.IntRange(0, 200_000),
              help="Bytes of each body.")  # fmt: skip
def command(messages: int, size: int) -> None:
    """Measure sending, failing over and draining on this machine.

    Two embedded namespaces in memory and the real SDK on loopback, so the figures say what pairbus
    and the SDK cost in CPU, not what a network adds. `paired` against `direct` is the price of
    being paired while all is well.

    \b
    Figures:
      direct    the SDK alone: one message a send
      paired    through the paired client, healthy
      backlog   through the paired client, failed over
      failover  from the first failure to the first message in the backlog, interval 0
      drain     backlog to destination with the bulk client, without Spark

    \b
    Example:
      pairbus bench --messages 5000 --size 200 --json
    """
    require("cryptography", "broker")
    from pairbus.demo.benchmark import measure

    logging.getLogger("pairbus").setLevel(logging.ERROR)  # the outage is intended
    results = list(measure(messages, b"x" * size))
    table = Table("figure", Column("value", right=True), "unit", title="Benchmarks")
    for row in results:
        table.add(row["name"], f"{row['value']:,.1f}", row["unit"])
    emit(results, table)
