"""An application written for the SDK, with types, that gets a paired client."""

from datetime import UTC, datetime

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.aio import ServiceBusSender as AioSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdmin
from azure.servicebus.management import ServiceBusAdministrationClient

import pairbus
import pairbus.aio
from pairbus import SendAvailabilityPairedNamespaceOptions


def work(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q", client_identifier="a", socket_timeout=1.0) as sender:
        use(sender)
    receiver: ServiceBusReceiver = client.get_queue_receiver("q", max_wait_time=3, prefetch_count=3)
    receiver.close()


def use(sender: ServiceBusSender) -> None:
    batch: ServiceBusMessageBatch = sender.create_message_batch()
    batch.add_message(ServiceBusMessage("a"))
    sender.send_messages(batch, timeout=3)
    sender.send_messages([ServiceBusMessage("a")])
    numbers: list[int] = sender.schedule_messages(ServiceBusMessage("a"), datetime.now(UTC))
    sender.cancel_scheduled_messages(numbers)


def main(a: ServiceBusClient, b: ServiceBusClient, admin: ServiceBusAdministrationClient) -> None:
    client = pairbus.pair_namespace(
        a,
        SendAvailabilityPairedNamespaceOptions(
            secondary=b, secondary_admin=admin, failover_interval=3
        ),
    )
    with client:
        work(client)
        use(client.get_topic_sender("t"))
        client.force_failover("q")
        work(client.secondary)


async def use_async(sender: AioSender) -> None:
    await sender.send_messages(ServiceBusMessage("a"))


async def main_async(a: AioClient, b: AioClient, admin: AioAdmin) -> None:
    client = await pairbus.aio.pair_namespace(
        a, SendAvailabilityPairedNamespaceOptions(secondary=b, secondary_admin=admin)
    )
    async with client, client.get_queue_sender("q") as sender:
        await use_async(sender)
    other: AioClient = client
    await other.close()
