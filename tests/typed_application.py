"""An application written for the SDK, with types, that gets a paired client.

It runs nowhere: mypy and pyright read it, both strictly.
"""

from datetime import UTC, datetime, timedelta

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.aio import ServiceBusReceiver as AioReceiver
from azure.servicebus.aio import ServiceBusSender as AioSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdmin
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

import pairbus
import pairbus.aio
from pairbus import SendAvailabilityPairedNamespaceOptions as Options
from pairbus import events


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
        Options(secondary=b, secondary_admin=admin, failover_interval=3),
    )
    with client:
        work(client)
        use(client.get_topic_sender("t"))
        client.force_failover("q")
        work(client.secondary)


async def work_async(client: AioClient) -> None:
    async with client.get_topic_sender("t", client_identifier="a", socket_timeout=1.0) as sender:
        await use_async(sender)
    receiver: AioReceiver = client.get_subscription_receiver("t", "s", max_wait_time=3)
    await receiver.close()


async def use_async(sender: AioSender) -> None:
    batch: ServiceBusMessageBatch = await sender.create_message_batch(1000)
    batch.add_message(ServiceBusMessage("a"))
    await sender.send_messages(batch, timeout=3)
    await sender.send_messages(AmqpAnnotatedMessage(value_body={"a": 1}))
    numbers: list[int] = await sender.schedule_messages(ServiceBusMessage("a"), datetime.now(UTC))
    await sender.cancel_scheduled_messages(numbers)


async def main_async(a: AioClient, b: AioClient, admin: AioAdmin) -> None:
    options = pairbus.aio.SendAvailabilityPairedNamespaceOptions(
        secondary=b, secondary_admin=admin, ping_primary_interval=timedelta(seconds=30)
    )
    client = await pairbus.aio.pair_namespace(a, options)
    async with client, client.get_queue_sender("q") as sender:
        await use_async(sender)
        await work_async(client)
        await client.force_primary("q")
        await work_async(client.secondary)
    other: AioClient = client
    await other.close()


class Shop:
    """Keeps what it gets under the SDK's types, as applications do."""

    client: ServiceBusClient
    sender: ServiceBusSender

    def __init__(self, client: ServiceBusClient, options: Options) -> None:
        self.client = pairbus.pair_namespace(client, options)
        self.sender = self.client.get_queue_sender("orders")

    def order(self, body: str) -> None:
        try:
            self.sender.send_messages(ServiceBusMessage(body))
        except pairbus.PairUnavailableError as error:
            both: tuple[BaseException | None, BaseException | None] = error.primary, error.secondary
            raise RuntimeError(both) from error
        except ServiceBusError:
            raise


def watch(event: events.Event) -> None:
    if isinstance(event, events.FailedOver):
        reason: str = event.reason
        print(event.entity, reason)


def settings(b: ServiceBusClient, admin: ServiceBusAdministrationClient) -> Options:
    return Options(secondary=b, secondary_admin=admin, observers=[watch], oversize="refuse")
