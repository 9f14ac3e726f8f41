"""The pytest fixtures that users get, and the fake clock."""

import datetime as dt
import subprocess
import sys

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import aio, pair_namespace
from pairbus.broker.entities.errors import ArgumentError
from pairbus.testing import FakeClock, FaultProxy, pair_options


def test_each_test_gets_a_namespace_of_its_own(servicebus) -> None:
    servicebus.create_queue("q")
    assert servicebus.is_running
    assert servicebus.do(lambda ns: [q.name for q in ns.admin.list_queues()]) == ["q"]


def test_a_premium_namespace_takes_large_messages(servicebus_premium):
    with servicebus_premium.admin_client() as admin:
        assert admin.get_namespace_properties().messaging_sku == "Premium"
        assert admin.create_queue("q").max_message_size_in_kilobytes == 1024


def test_a_standard_namespace_refuses_them(servicebus_standard):
    with servicebus_standard.admin_client() as admin:
        assert admin.get_namespace_properties().messaging_sku == "Standard"
        assert admin.create_queue("q").max_message_size_in_kilobytes == 256


def test_which_is_fresh(servicebus) -> None:
    assert servicebus.do(lambda ns: ns.admin.list_queues()) == []


def test_namespaces_by_name(servicebus_namespace, tmp_path) -> None:
    one = servicebus_namespace("one")
    two = servicebus_namespace("two", data=tmp_path)
    assert (one.name, two.name) == ("one", "two")
    assert one.port != two.port
    assert str(one.port) in one.connection_string


def test_one_for_the_whole_run(servicebus_session) -> None:
    assert servicebus_session.is_running


@pytest.mark.long
def test_parallel_workers_have_namespaces_of_their_own(tmp_path):
    (tmp_path / "test_shared.py").write_text(
        """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(8))
def test_uses_the_shared_namespace(servicebus_session, number):
    servicebus_session.create_queue(f"q{number}")
    worker = os.environ["PYTEST_XDIST_WORKER"]
    with pathlib.Path("ports").open("a") as file:
        file.write(f"{worker} {servicebus_session.port}\\n")
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    subprocess.run([*command, "test_shared.py"], cwd=tmp_path, check=True, timeout=240)
    used = {tuple(line.split()) for line in (tmp_path / "ports").read_text().splitlines()}
    workers, ports = zip(*used, strict=True)
    assert len(set(workers)) == len(set(ports)) == len(used) == 2


@pytest.mark.slow
@pytest.mark.sdk
def test_two_namespaces_are_paired_in_one_line(servicebus_namespace):
    primary, secondary = servicebus_namespace("contoso"), servicebus_namespace("contoso-dr")
    primary.create_queue("orders")
    options = pair_options(primary, secondary, failover_interval=0, backlog_queue_count=1)
    assert options.primary_namespace == "contoso"
    with pair_namespace(primary.client(retry_total=0), options) as client:
        primary.kill()
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("an umbrella"))
        (entity,) = client.status().entities
        assert entity.backlog_queue == "contoso/x-servicebus-transfer/0"
    options.secondary.close()
    options.secondary_admin.close()


@pytest.mark.slow
@pytest.mark.sdk
async def test_two_namespaces_are_paired_in_one_line_for_asyncio(servicebus_namespace):
    primary, secondary = servicebus_namespace("contoso"), servicebus_namespace("contoso-dr")
    primary.create_queue("orders")
    options = pair_options(primary, secondary, aio=True, backlog_queue_count=1)
    async with (
        primary.aio_client() as home,
        options.secondary,
        options.secondary_admin,
        await aio.pair_namespace(home, options) as client,
    ):
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("an umbrella"))
        async with client.get_queue_receiver("orders") as receiver:
            assert [str(m) for m in await receiver.receive_messages()] == ["an umbrella"]


def test_options_of_ones_own_win_over_those_filled_in(servicebus_namespace):
    primary, secondary = servicebus_namespace("contoso"), servicebus_namespace("contoso-dr")
    options = pair_options(primary, secondary, enable_syphon=True, primary_namespace="other")
    assert options.primary_namespace == "other"
    assert options.syphon.secondary == secondary.connection_string
    with pytest.raises(TypeError, match="no_such_option"):
        pair_options(primary, secondary, no_such_option=1)


def test_the_fake_clock_moves_when_told_and_tells_others() -> None:
    clock = FakeClock(1000.0)
    heard = []
    clock.subscribe(lambda: heard.append(clock()))
    assert clock() == 1000.0
    assert clock.advance(5) == 1005.0
    assert heard == [1005.0]
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_a_proxy_may_be_closed_twice() -> None:
    proxy = FaultProxy("127.0.0.1:1").start()
    proxy.close()
    proxy.close()


def test_durations_may_be_written_as_the_service_does(servicebus):
    servicebus.create_queue("orders", lock_duration="PT5S", default_message_time_to_live="P1D")
    servicebus.create_topic("events", duplicate_detection_history_time_window="PT1M")
    servicebus.create_subscription("events", "all", auto_delete_on_idle="PT10M")
    with servicebus.admin_client() as admin:
        queue = admin.get_queue("orders")
        found = admin.get_subscription("events", "all").auto_delete_on_idle
    assert queue.lock_duration == dt.timedelta(seconds=5)
    assert queue.default_message_time_to_live == dt.timedelta(days=1)
    assert found == dt.timedelta(minutes=10)
    with pytest.raises(ArgumentError, match="'1 minute' is not a duration"):
        servicebus.create_queue("carts", lock_duration="1 minute")
