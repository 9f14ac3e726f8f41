"""An asyncio worker: reads orders from the primary, and sends an invoice for each.

The paired client has the surface of `ServiceBusClient`: receivers are the SDK's own, senders
survive an outage. So an order is completed as soon as its invoice is stored, in the primary or
in the backlog.
"""

import asyncio
import os

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from pairbus.administration import aio_admin_client
from pairbus.aio import PairedClient, SendAvailabilityPairedNamespaceOptions, pair_namespace


async def work(client: PairedClient, stop: asyncio.Event) -> int:
    """Handle orders until `stop` is set; return their number."""
    handled = 0
    async with client.get_queue_sender("invoices") as invoices:
        while not stop.is_set():
            try:
                async with client.get_queue_receiver("orders") as orders:
                    while not stop.is_set():
                        for order in await orders.receive_messages(20, max_wait_time=1):
                            invoice = ServiceBusMessage(
                                f"invoice for {order}", message_id=f"invoice-{order.message_id}"
                            )
                            await invoices.send_messages(invoice)
                            await orders.complete_message(order)
                            handled += 1
            except ServiceBusError as error:
                # Receiving needs the primary. An order that could not be completed after its
                # invoice was sent is received again, and its invoice gets the same id.
                print(f"the primary cannot be read ({type(error).__name__}); trying again")
                await asyncio.sleep(1)
    return handled


async def main(stop: asyncio.Event | None = None) -> int:
    """Pair the namespaces and work."""
    primary, secondary = os.environ["PAIRBUS_PRIMARY"], os.environ["PAIRBUS_SECONDARY"]
    async with aio_admin_client(secondary) as admin:
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(secondary),
            secondary_admin=admin,
            primary_namespace=os.environ.get("PAIRBUS_PRIMARY_NAMESPACE"),
            failover_interval=0,
            ledger=os.environ.get("PAIRBUS_LEDGER"),
        )
        client = await pair_namespace(ServiceBusClient.from_connection_string(primary), options)
        async with client:
            return await work(client, stop or asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main())
