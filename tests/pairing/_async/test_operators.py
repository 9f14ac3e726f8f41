"""What operators see and can do, and what others see of it."""

import json

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError

from pairbus import events
from pairbus.exceptions import ClientClosedError

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


async def test_operator_forces_the_backlog_and_releases_it(world):
    client = await world.pair(ping_primary_interval=1800)
    sender = world.keep(client.get_queue_sender("orders"))

    await client.force_failover("Orders")
    await client.force_failover("orders")
    await sender.send_messages(ServiceBusMessage("a"))
    status = client.status().entity("orders")
    assert (status.phase, status.forced, status.next_ping) == ("failed_over", "backlog", None)
    assert [m.body for m in world.backlog()] == [b"a"]

    # One ping at once tells that the primary is well.
    await client.release("orders")
    restored = await world.seen.wait(events.Restored)
    assert restored.by == "ping"
    await sender.send_messages(ServiceBusMessage("b"))
    assert world.bodies(world.primary, "orders") == [b"b"]
    assert [event.name for event in world.seen.events] == [
        "RoutingForced",
        "FailedOver",
        "MessageBacklogged",
        "RoutingReleased",
        "PingSent",
        "Restored",
    ]


async def test_operator_forces_the_primary_whatever_happens(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await client.force_primary("orders")
    world.primary.kill()

    for _ in range(2):
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("a"))
    assert client.status().entity("orders").forced == "primary"

    await client.release("orders")
    await sender.send_messages(ServiceBusMessage("b"))
    assert [m.body for m in world.backlog()] == [b"b"]


async def test_observer_that_raises_costs_nothing(world):
    told = []

    def broken(event):
        raise RuntimeError("a broken dashboard")

    client = await world.pair(observers=[broken, told.append])
    world.primary.kill()
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("a"))

    names = [event.name for event in told if event.name != "PingSent"]
    assert names == ["FailedOver", "MessageBacklogged"]
    assert len(world.backlog()) == 1
    for event in told:
        assert event.pair == f"127.0.0.1:{world.primary.port}>127.0.0.1:{world.secondary.port}"
        # Metrics that come from events and those that come from the status are of one pair.
        assert event.pair == f"{client.status().primary}>{client.status().secondary}"
        assert event.entity == "orders"
        assert event.at.tzinfo is not None
        json.dumps(event.as_dict())


async def test_status_file_is_kept_for_other_processes_and_removed_at_close(world, tmp_path):
    client = await world.pair(ledger=tmp_path)
    client_id = client.status().client_id
    file = tmp_path / "status" / f"{client_id}.json"
    assert json.loads(file.read_text())["state"] == "open"
    sender = world.keep(client.get_queue_sender("orders"))
    world.primary.kill()

    await sender.send_messages(ServiceBusMessage("a", message_id="m1"))
    await world.seen.wait(events.FailedOver)

    shown = {}
    for _ in range(200):  # written by a thread of its own, at once
        shown = json.loads(file.read_text())
        if shown["entities"] and shown["entities"][0]["phase"] == "failed_over":
            break
        await _moment()
    [entity] = shown["entities"]
    assert (shown["kind"], shown["version"], shown["client_id"]) == ("client", 1, client_id)
    assert shown["primary_namespace"] == "contoso"
    assert shown["secondary"] == f"127.0.0.1:{world.secondary.port}"
    assert shown["ledger_problem"] is None
    assert {"host", "pid", "updated_at", "backlog_queues", "events"} <= shown.keys()
    assert entity["entity"] == "orders"
    assert {"since", "last_error", "backlog_queue", "next_ping", "forced"} <= entity.keys()
    assert set(entity["counts"]) == {"sent_primary", "sent_backlog", "pings", "failures"}
    assert shown["backlog_queues"][0] == {
        "path": "contoso/x-servicebus-transfer/0",
        "in_rotation": True,
        "reason": None,
        "until": None,
    }
    assert shown["events"][0]["event"] == "FailedOver"

    await client.close()
    assert not file.exists()
    assert list((tmp_path / "status").iterdir()) == []


async def _moment():
    from pairbus.pairing.runtime import asleep

    await asleep(0.02)


async def test_ledger_has_every_operation_and_every_message_of_the_backlog(world, tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    client = await world.pair(ledger=tmp_path)
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("x" * 100))
    await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    world.primary.faults.reject("amqp:internal-error", "orders", times=1)
    await sender.send_messages(ServiceBusMessage("c", message_id="m1", session_id="s"))
    await world.seen.wait(events.Restored)
    await client.close()

    rows = pyarrow.read_table(tmp_path / "operations").to_pylist()
    by_stage = {}
    for row in rows:
        stage = by_stage.setdefault(row["stage"], {"count": 0, "messages": 0})
        stage["count"] += row["count"]
        stage["messages"] += row["messages"]
    assert by_stage["send_primary"] == {"count": 2, "messages": 3}
    assert by_stage["send_backlog"] == {"count": 1, "messages": 1}
    assert by_stage["ping"] == {"count": 1, "messages": 1}
    assert by_stage["management"]["count"] == 4
    [message] = pyarrow.read_table(tmp_path / "messages").to_pylist()
    assert message["event"] == "backlogged"
    assert (message["message_id"], message["destination"]) == ("m1", "orders")
    assert message["session_id"] == "s"
    assert message["backlog_queue"].startswith("contoso/x-servicebus-transfer/")


async def test_ledger_has_the_management_calls_of_a_pairing_that_failed(world, tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    admin = world.secondary.aio_admin_client()
    world.admins.append(admin)

    async def failing(path, **kwargs):
        raise OSError("no route")

    admin.create_queue = failing
    client = await world.pair(secondary_admin=admin, require_secondary=False, ledger=tmp_path)
    await world.seen.wait(events.Unprotected)
    await client.close()

    # Each attempt looks up two queues. A second attempt may have begun before the close.
    rows = pyarrow.read_table(tmp_path / "operations").to_pylist()
    assert sum(row["count"] for row in rows if row["stage"] == "management") >= 2


async def test_ledger_that_cannot_be_written_costs_no_message(world, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    client = await world.pair(ledger=blocked)
    sender = world.keep(client.get_queue_sender("orders"))

    await sender.send_messages(ServiceBusMessage("a"))

    assert world.bodies(world.primary, "orders") == [b"a"]


async def test_closed_client_says_so(world):
    client = await world.pair()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("a"))

    await client.close()
    await client.close()

    assert client.status().state == "closed"
    with pytest.raises(ClientClosedError, match="closed") as caught:
        await sender.send_messages(ServiceBusMessage("b"))
    assert isinstance(caught.value, ValueError), "as the SDK has it"
    with pytest.raises(ClientClosedError, match="closed"):
        client.get_queue_sender("orders")
    with pytest.raises(ClientClosedError):
        client.get_queue_receiver("orders")
    with pytest.raises(ClientClosedError):
        client.secondary.get_queue_sender("orders")
    with pytest.raises(ClientClosedError):
        await client.force_failover("orders")
    assert [event.name for event in world.seen.events] == ["ClientClosed"]
