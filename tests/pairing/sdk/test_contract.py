"""The contract with the SDK: few private names, each probed, each with a fallback."""

import ast
import asyncio
import logging
from pathlib import Path

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    TransportType,
)

import pairbus.aio
from pairbus import PairingError, SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.amqp.message import Message
from pairbus.broker.run import run
from pairbus.pairing.outgoing import PairedMessageBatch, prepare
from pairbus.pairing.packing import pack
from pairbus.pairing.sdk import contract
from pairbus.pairing.sdk.batches import batch_of, payloads_of
from pairbus.pairing.sdk.contract import PrivateName
from pairbus.pairing.sdk.senders import batch_arguments
from pairbus.pairing.sdk.wire import wire_of

SDK = Path(pairbus.__file__).parent / "pairing" / "sdk"
BACKLOG = "contoso/x-servicebus-transfer/0"
NAMES = [name for name in vars(contract).values() if isinstance(name, PrivateName)]
ALL = [name.name for name in NAMES]
SYNC = [name for name in ALL if name not in ("client_ready_async", "writer", "session")]
#: Without `session` a web socket is not recognised; `sock` is read of web sockets only.
ASYNC = [name for name in ALL if name not in ("client_ready", "sock", "session")]


def test_there_are_at_most_15_private_names():
    names = [name for name in ALL if name.startswith("_")]
    assert len(set(names)) == len(names) <= 15


def test_no_private_attribute_is_read_but_through_the_contract():
    for path in SDK.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                assert owner == "self" or node.attr.startswith("__"), (path.name, node.attr)


@pytest.fixture(scope="module")
def namespaces():
    with run(namespace="contoso") as primary, run(namespace="backup") as secondary:
        primary.create_queue("orders")
        yield primary, secondary


@pytest.fixture
def hide(monkeypatch):
    """Hide one internal name of the SDK, as if a later version had renamed it; "" hides none."""
    monkeypatch.setattr(contract, "_warned", set())

    shown = [(private, private.of) for private in NAMES]

    def hide(name):
        def missing(_):
            raise AttributeError(name)

        for private, of in shown:
            object.__setattr__(private, "of", missing if private.name == name else of)

    yield hide
    hide("")


def test_a_sender_that_is_closed_while_it_opens_is_no_reason_to_warn(monkeypatch, caplog):
    class Handler:
        _connection = _link = _cbs_authenticator = client_ready = None

    class Sender:
        _handler = Handler
        _create_handler = _close_handler = None

        def close(self): ...

    monkeypatch.setattr(contract, "_warned", set())
    with caplog.at_level(logging.WARNING, "pairbus.sdk"):
        contract.probe_open_sender(Sender)

    assert not caplog.records


@pytest.mark.parametrize("name", ["session", "sock"])
async def test_without_the_names_of_a_web_socket_it_is_not_cut_and_a_warning_is_logged(
    servicebus, hide, name, caplog
):
    from azure.servicebus import aio

    hide(name)
    servicebus.create_queue("orders")
    client = aio.ServiceBusClient.from_connection_string(
        "Endpoint=sb://contoso.servicebus.windows.net/;"
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE",
        custom_endpoint_address=f"sb://localhost:{servicebus.port}",
        connection_verify=str(servicebus.certificate),
        transport_type=TransportType.AmqpOverWebsocket,
    )
    async with client, client.get_queue_sender("orders") as sender:
        with caplog.at_level(logging.WARNING, "pairbus.sdk"):
            contract.probe_open_sender(sender)

        [record] = caplog.records
        assert "an abandoned thread stays" in record.getMessage()
        assert wire_of(sender) is None


def bodies(namespace, path):
    found = namespace.do(lambda ns: ns.peek(path, 0, 1000))
    return [bytes(Message.parse(delivery.message.bare).body) for delivery in found]


@pytest.mark.sdk
@pytest.mark.slow
@pytest.mark.parametrize("name", SYNC)
def test_without_any_private_name_sends_work_and_one_warning_is_logged(
    namespaces, hide, name, caplog
):
    hide(name)
    primary, secondary = namespaces
    with secondary.admin_client() as admin, caplog.at_level(logging.WARNING, "pairbus.sdk"):
        client = pair_namespace(
            ServiceBusClient.from_connection_string(primary.connection_string),
            SendAvailabilityPairedNamespaceOptions(
                secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
                secondary_admin=admin,
                primary_namespace="contoso",
                backlog_queue_count=1,
            ),
        )
        with client, client.get_queue_sender("orders") as sender:
            for path, namespace in (("orders", primary), (BACKLOG, secondary)):
                before = len(bodies(namespace, path))
                sender.send_messages(ServiceBusMessage("a"))
                sender.send_messages([ServiceBusMessage("b"), ServiceBusMessage("c")])
                batch = sender.create_message_batch()
                batch.add_message(ServiceBusMessage("d", session_id="s"))
                batch.add_message(ServiceBusMessage("e"))
                sender.send_messages(batch)

                assert bodies(namespace, path)[before:] == [b"a", b"b", b"c", b"d", b"e"]
                client.force_failover("orders")
            foreign = ServiceBusMessageBatch()
            foreign.add_message(ServiceBusMessage("f", message_id="1"))
            if name in ("_messages", "_message", "5", "_amqp_transport"):
                with pytest.raises(PairingError, match="create_message_batch"):
                    sender.send_messages(foreign)
            else:
                sender.send_messages(foreign)
                assert bodies(secondary, BACKLOG)[-1] == b"f"

    [record] = [r for r in caplog.records if r.name == "pairbus.sdk"]
    assert f"no {name} of a" in record.getMessage()


@pytest.mark.sdk
@pytest.mark.slow
@pytest.mark.parametrize("name", ASYNC)
def test_without_a_private_name_the_async_client_works_too(namespaces, hide, name, caplog):
    from azure.servicebus import aio

    hide(name)
    primary, secondary = namespaces

    async def main():
        admin = secondary.aio_admin_client()
        client = await pairbus.aio.pair_namespace(
            aio.ServiceBusClient.from_connection_string(primary.connection_string),
            SendAvailabilityPairedNamespaceOptions(
                secondary=aio.ServiceBusClient.from_connection_string(secondary.connection_string),
                secondary_admin=admin,
                primary_namespace="contoso",
                backlog_queue_count=1,
            ),
        )
        async with client, client.get_queue_sender("orders") as sender:
            for _ in range(2):
                await sender.send_messages(ServiceBusMessage("a"))
                batch = await sender.create_message_batch()
                batch.add_message(ServiceBusMessage("b"))
                await sender.send_messages(batch)
                await client.force_failover("orders")
        await admin.close()

    with caplog.at_level(logging.WARNING, "pairbus.sdk"):
        asyncio.run(main())

    [record] = [r for r in caplog.records if r.name == "pairbus.sdk"]
    assert f"no {name} of a" in record.getMessage()
    assert bodies(primary, "orders")[-2:] == [b"a", b"b"]
    assert bodies(secondary, BACKLOG)[-2:] == [b"a", b"b"]


@pytest.mark.sdk
@pytest.mark.slow
@pytest.mark.parametrize("name", ["_config", "_close_handler", "_messages"])
def test_names_are_probed_for_a_client_with_an_entity_path_too(namespaces, hide, name, caplog):
    hide(name)
    primary, secondary = namespaces
    with caplog.at_level(logging.WARNING, "pairbus.sdk"):
        client = pair_namespace(
            ServiceBusClient.from_connection_string(
                f"{primary.connection_string};EntityPath=orders"
            ),
            SendAvailabilityPairedNamespaceOptions(
                secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
                primary_namespace="contoso",
            ),
        )
        with client, client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("a"))

    [record] = [r for r in caplog.records if r.name == "pairbus.sdk"]
    assert f"no {name} of a" in record.getMessage()


@pytest.mark.sdk
async def test_batch_that_the_sdk_encodes_again_is_refused_and_not_sent_empty(servicebus):
    from azure.servicebus import aio

    servicebus.create_queue("orders")
    async with aio.ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        other = type("Other", (batch_arguments(client)["amqp_transport"],), {})
        batch = batch_of([b"encoded"], 1000, {"amqp_transport": other})

        async with client.get_queue_sender("orders") as sender:
            with pytest.raises(TypeError, match="_Encoded"):
                await sender.send_messages(batch)

    assert bodies(servicebus, "orders") == []


@pytest.mark.parametrize("name", ["", "_message", "_messages"])
def test_objects_that_are_reused_are_redirected_as_they_were_added(hide, name):
    hide(name)
    arguments = batch_arguments(ServiceBusClient("x", AzureNamedKeyCredential("name", "key")))
    batch = PairedMessageBatch(1 << 20, arguments=arguments)
    message = ServiceBusMessage(b"body", application_properties={"n": 0})
    for number in range(3):
        message.message_id = str(number)
        message.application_properties["n"] = number
        batch.add_message(message)

    [chunk] = pack(prepare(batch), "orders", 1 << 20, arguments)
    hide("")

    sent = [Message.parse(payload) for payload in payloads_of(chunk.what)]
    assert [m.properties.message_id for m in sent] == ["0", "1", "2"]
    assert [m.application_properties["n"] for m in sent] == [0, 1, 2]
