"""The syphon works with Listen on the secondary and Send on the primary, and no more."""

from pathlib import Path

import pytest

from pairbus import broker
from tests.spark.syphon import credentials
from tests.syphon.conftest import Pair, backlog_message, make_queues

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_syphon_needs_listen_on_the_secondary_and_send_on_the_primary(spark, tmp_path):
    from pairbus.spark.syphon import start_syphon

    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        make_queues(secondary, 2)
        pair = Pair(primary, secondary, 2, tmp_path)
        pair.fill([backlog_message("orders", number) for number in range(20)])
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(
            "".join(Path(side.certificate).read_text() for side in (primary, secondary))
        )

        syphon = start_syphon(
            pair.options(
                primary=f"{credentials.__name__}:sends",
                secondary=f"{credentials.__name__}:listens",
                primary_host=f"127.0.0.1:{primary.port}",
                secondary_host=f"127.0.0.1:{secondary.port}",
                ca_file=str(trusted),
            ),
            spark=spark,
        )
        try:
            assert pair.numbers("orders", 20, timeout=120) == list(range(20))
            assert syphon.status()["remaining"] is None, "counting needs the right Manage"
            assert syphon.wait_until_empty(60), "peeking needs no more than Listen"
        finally:
            syphon.stop()
            pair.close()
