"""Faults on demand, seen by the SDK; in process and over the control API."""

import json
import math
import socket
import time
import urllib.error
import urllib.request

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus.broker import run


@pytest.fixture(scope="module")
def queue(bus) -> str:
    return bus.queue()


@pytest.fixture(autouse=True)
def no_fault_is_left(bus):
    yield
    bus.ns.faults.clear()


def control(ns, method: str, path: str, body: object = None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{ns.port}/$control/{path}", data=data, method=method
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        text = response.read()
    return json.loads(text) if text else None


def fresh_send(bus, queue: str, **options) -> None:
    with bus.client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"), **options)


def test_refused_connections_and_back(bus, queue) -> None:
    sender = bus.client.get_queue_sender(queue)
    bus.keep(sender)
    with bus.ns.faults.refuse():
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusConnectionError):
            fresh_send(bus, queue)
    fresh_send(bus, queue)


def test_reset_connections(bus, queue) -> None:
    sender = bus.keep(bus.client.get_queue_sender(queue))
    with bus.ns.faults.reset():
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusConnectionError):
            fresh_send(bus, queue)
    fresh_send(bus, queue)


def test_a_broker_that_says_nothing(bus, queue) -> None:
    sender = bus.keep(bus.client.get_queue_sender(queue))
    with bus.ns.faults.silent(), pytest.raises(OperationTimeoutError):
        sender.send_messages(ServiceBusMessage("x"), timeout=0.5)
    fresh_send(bus, queue)


@pytest.mark.parametrize("taken", [True, False])
def test_a_send_that_is_never_answered(bus, taken) -> None:
    queue = bus.queue()
    sender = bus.keep(bus.client.get_queue_sender(queue))
    with bus.ns.faults.hang(queue, take=taken) as fault:
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("x"), timeout=0.5)
        while not fault.hits:  # the broker may read it later than that
            time.sleep(0.01)
    assert bus.runtime(queue).active_message_count == int(taken)


def test_a_delayed_answer(bus, queue) -> None:
    sender = bus.keep(bus.client.get_queue_sender(queue))
    with bus.ns.faults.delay(0.2, queue) as fault:
        sender.send_messages(ServiceBusMessage("x"))
        assert fault.hits == 1


def test_only_the_chosen_sends_are_rejected(bus, queue) -> None:
    sender = bus.sender(queue)
    with bus.ns.faults.reject("amqp:internal-error", queue, nth=2, times=1) as fault:
        sender.send_messages(ServiceBusMessage("1"))
        with pytest.raises(ServiceBusError, match="a fault was injected"):
            sender.send_messages(ServiceBusMessage("2"))
        sender.send_messages(ServiceBusMessage("3"))
        assert (fault.seen, fault.hits) == (3, 1)


def test_a_fault_of_one_entity_leaves_the_others_alone(bus, queue) -> None:
    other = bus.queue()
    bus.sender(queue), bus.sender(other)
    with bus.ns.faults.throttle(queue.upper()):
        with pytest.raises(ServiceBusServerBusyError):
            bus.sender(queue).send_messages(ServiceBusMessage("x"))
        bus.sender(other).send_messages(ServiceBusMessage("x"))


@pytest.mark.parametrize("kind", ["detach", "close"])
def test_a_link_or_connection_that_ends_during_a_send(bus, queue, kind) -> None:
    sender = bus.keep(bus.client.get_queue_sender(queue))
    with bus.ns.faults.inject(kind, entity=queue), pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("x"))
    sender.send_messages(ServiceBusMessage("again"))


def test_tokens_are_refused_and_links_not_let_in(bus, queue) -> None:
    with (
        bus.ns.faults.inject("reject", on="token", status=503),
        pytest.raises(ServiceBusAuthenticationError),
    ):
        fresh_send(bus, queue)
    with (
        bus.ns.faults.inject("reject", on="attach", condition="com.microsoft:server-busy"),
        pytest.raises(ServiceBusServerBusyError),
    ):
        fresh_send(bus, queue)


def test_a_link_or_a_token_that_is_answered_late_or_never(bus, queue) -> None:
    with (
        bus.ns.faults.inject("delay", on="attach", entity=queue, delay=0.1) as late,
        bus.ns.faults.inject("delay", on="token", delay=0.1) as later,
    ):
        fresh_send(bus, queue)
        assert (late.hits, later.hits) == (1, 1)
    if not bus.waits_for_outcome:
        return  # the older SDK waits for a link for ever
    with bus.ns.faults.inject("hang", on="attach", entity=queue):
        sender = bus.client.get_queue_sender(queue)
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("x"), timeout=1.5)
    bus.keep(sender)


def test_management_and_settlement_fail_on_demand(bus) -> None:
    queue = bus.queue()
    bus.sender(queue).send_messages(ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    [message] = bus.take(receiver)
    if bus.waits_for_outcome:
        with (
            bus.ns.faults.inject(
                "reject", on="settle", entity=queue, condition="amqp:not-allowed", times=1
            ),
            pytest.raises(ServiceBusError, match="a fault was injected"),
        ):
            receiver.complete_message(message)
    with (
        bus.ns.faults.inject("throttle", on="management", entity=queue),
        pytest.raises(ServiceBusServerBusyError),
    ):
        receiver.peek_messages()


def test_the_control_api_injects_lists_and_clears(bus, queue) -> None:
    made = control(bus.ns, "POST", "faults", {"kind": "throttle", "entity": queue})
    assert made["condition"] == "com.microsoft:server-busy"
    with pytest.raises(ServiceBusServerBusyError):
        bus.sender(queue).send_messages(ServiceBusMessage("x"))
    [shown] = control(bus.ns, "GET", "faults")
    assert shown["hits"] == 1
    control(bus.ns, "DELETE", f"faults/{made['id']}")
    assert control(bus.ns, "GET", "faults") == []
    bus.sender(queue).send_messages(ServiceBusMessage("x"))


def test_the_control_api_stays_reachable_while_connections_fail(bus, queue) -> None:
    for kind in ("silent", "reset"):
        control(bus.ns, "POST", "faults", {"kind": kind})
        assert control(bus.ns, "GET", "health")["status"] == "ok"
        control(bus.ns, "DELETE", "faults")
    fresh_send(bus, queue)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"kind": "melt"},
        {"kind": "refuse"},
        {"kind": "delay", "colour": 1},
        {"on": "x"},
        {"kind": "reject", "entity": 5},
        {"kind": "reject", "condition": None},
        {"kind": "delay", "delay": "1"},
        {"kind": "delay", "delay": math.nan},
        {"kind": "delay", "delay": math.inf},
        {"kind": "silent", "lasts": math.nan},
    ],
)
def test_the_control_api_refuses_what_makes_no_sense(bus, body) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        control(bus.ns, "POST", "faults", body)
    assert caught.value.code == 400
    assert "error" in json.loads(caught.value.read())


def test_the_control_api_does_not_answer_web_pages(bus) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{bus.ns.port}/$control/faults", headers={"Origin": "https://evil.test"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert caught.value.code == 403


def test_operations_are_counted_and_readable(bus) -> None:
    queue = bus.queue()
    bus.sender(queue).send_messages([ServiceBusMessage("a"), ServiceBusMessage(b"b" * 70_000)])
    receiver = bus.receiver(queue)
    for message in bus.take(receiver, 2):
        receiver.complete_message(message)
    bus.settled(receiver)
    counted = control(bus.ns, "GET", "operations")[queue]
    assert counted["send"]["messages"] == 2
    assert counted["send"]["billable"] == 3  # each 64 KB is one
    assert counted["receive"]["messages"] == 2
    assert counted["settle"]["billable"] == 2
    assert bus.ns.operations[queue] == counted


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
    ],
)
def test_a_control_port_is_out_of_the_reach_of_faults(host) -> None:
    with run(host=host, control_port=0) as ns, ns.faults.refuse():
        address = ns.control_address
        with urllib.request.urlopen(f"http://{address}/$control/health", timeout=10) as response:
            assert json.loads(response.read())["faults"] == 1


def test_a_fault_ends_by_itself(bus, queue) -> None:
    bus.ns.faults.refuse(lasts=4.0)
    with pytest.raises(ServiceBusConnectionError):
        fresh_send(bus, queue)
    deadline = time.monotonic() + 60
    while bus.ns.faults.active and time.monotonic() < deadline:
        time.sleep(0.02)  # the end of a fault tells nobody
    fresh_send(bus, queue)
