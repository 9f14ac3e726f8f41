"""`pairbus bench`: measure sending, failover and draining on this machine."""

import logging

import click

from pairbus.cli.errors import require
from pairbus.cli.options import setting
from pairbus.cli.output import emit, json_option
from pairbus.cli.tables import Table


@click.command("bench")
@json_option
@setting(
    "--messages", default=2000, type=click.IntRange(10), help="Number of messages for each figure."
)
@setting(
    "--size", default=1024, type=click.IntRange(0, 200_000), help="Size of each body in bytes."
)
def command(messages: int, size: int) -> None:
    """Measure sending, failing over and draining on this machine.

    The benchmark uses the SDK and two embedded namespaces in memory on loopback. The figures
    therefore show the CPU cost of pairbus and the SDK without a network. The difference between
    `direct` and `paired` is the cost of pairing while the primary is healthy.

    \b
    Figures:
      direct    the SDK alone, one message per send
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
    table = Table("figure", ">value", "unit", title="Benchmarks")
    for row in results:
        table.add(row["name"], f"{row['value']:,.1f}", row["unit"])
    emit(results, table)
