"""A disk that is full, from the SDK's side: told so, nothing half-done, and then it works again."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus import broker

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def limit(ns, pages: int | None) -> None:
    """Leave the store no room but what it has, or (None) all the room that it wants."""

    def set_limit(namespace):
        write = namespace._store._write  # noqa: SLF001 - only SQLite can limit its file
        (now,) = write.execute("PRAGMA page_count").fetchone()
        write.execute(f"PRAGMA max_page_count = {1_000_000 if pages is None else now + pages}")

    ns.do(set_limit)


def test_with_a_full_disk_sends_fail_for_now_and_nothing_that_was_acknowledged_is_lost(tmp_path):
    with broker.run("n", data=tmp_path, durability="full") as ns:
        ns.create_queue("q")
        with ServiceBusClient.from_connection_string(ns.connection_string, retry_total=0) as client:
            with client.get_queue_sender("q") as sender:
                sender.send_messages(ServiceBusMessage("before"))
                limit(ns, 0)
                with pytest.raises(ServiceBusError) as refused:
                    sender.send_messages(ServiceBusMessage("x" * 500_000))
                assert refused.value._retryable  # noqa: SLF001 - how the SDK decides on a retry
                with ns.admin_client() as admin:
                    found = admin.get_queue_runtime_properties("q")
                    assert found.total_message_count == 1
                limit(ns, None)
                sender.send_messages(ServiceBusMessage("after"))
            ns.restart()
            with client.get_queue_receiver("q") as receiver:
                got = []
                while len(got) < 2:
                    got += receiver.receive_messages(max_message_count=2, max_wait_time=10)
                assert [str(one) for one in got] == ["before", "after"]
