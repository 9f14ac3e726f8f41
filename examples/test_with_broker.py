"""Test your own code against a Service Bus that runs in the test: the fixture `servicebus`.

pairbus includes the fixtures as a pytest plugin: you need not import or configure anything.
"""

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.testing import RunningNamespace


def place_order(client: ServiceBusClient, item: str) -> bool:
    """The code under test: True if the order was taken."""
    try:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(item))
    except ServiceBusError:
        return False
    return True


def test_order_is_in_the_queue(servicebus: RunningNamespace) -> None:
    servicebus.create_queue("orders")
    with ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        assert place_order(client, "an umbrella")
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            assert str(message) == "an umbrella"
            receiver.complete_message(message)


def test_order_is_refused_while_service_bus_is_down(servicebus: RunningNamespace) -> None:
    servicebus.create_queue("orders")
    with ServiceBusClient.from_connection_string(
        servicebus.connection_string, retry_total=0
    ) as client:
        servicebus.stop()
        assert not place_order(client, "an umbrella")
        servicebus.start()
        assert place_order(client, "an umbrella")
