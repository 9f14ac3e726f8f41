"""A web shop that keeps taking orders through an outage: FastAPI and `pairbus.aio`.

    PAIRBUS_PRIMARY='Endpoint=…' PAIRBUS_SECONDARY='Endpoint=…' uvicorn examples.orders_api:app

The shop answers 202 when the order is stored: in the primary or, after the failover, in a backlog
queue of the secondary. It answers 503 if neither namespace accepts the order, or if the primary is
down and `failover_interval` has not elapsed yet.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusError
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from pairbus.aio import SendAvailabilityPairedNamespaceOptions, pair_namespace


class Order(BaseModel):
    """An order of a customer."""

    number: str
    item: str
    customer: str


def admin_client(connection_string: str) -> ServiceBusAdministrationClient:
    """Return an administration client; for the embedded broker, one that uses plain HTTP."""
    if "UseDevelopmentEmulator=true" in connection_string:
        from pairbus.administration import aio_admin_client

        return aio_admin_client(connection_string)
    return ServiceBusAdministrationClient.from_connection_string(connection_string)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Pair once, when the application starts; it works with the primary down, too."""
    primary, secondary = os.environ["PAIRBUS_PRIMARY"], os.environ["PAIRBUS_SECONDARY"]
    async with admin_client(secondary) as admin:
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(secondary),
            secondary_admin=admin,
            primary_namespace=os.environ.get("PAIRBUS_PRIMARY_NAMESPACE"),
            failover_interval=float(os.environ.get("FAILOVER_INTERVAL", "10")),
            send_timeout=5,
            ledger=os.environ.get("PAIRBUS_LEDGER"),
        )
        client = await pair_namespace(ServiceBusClient.from_connection_string(primary), options)
        async with client, client.get_queue_sender("orders") as sender:
            app.state.client, app.state.sender = client, sender
            yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take_order(order: Order, request: Request) -> dict[str, str]:
    """Send an order. Its number is the message id, so duplicate detection drops a repeated one."""
    message = ServiceBusMessage(
        order.model_dump_json(), message_id=order.number, session_id=order.customer
    )
    try:
        await request.app.state.sender.send_messages(message)
    except ServiceBusError as error:
        # The entity is not failed over yet, or neither namespace accepts it: the customer retries.
        raise HTTPException(503, "please try again", {"Retry-After": "2"}) from error
    return {"order": order.number, "status": "accepted"}


@app.get("/health")
async def health(request: Request) -> dict[str, str]:
    """Return the state of each entity, such as `healthy` or `failed_over`."""
    entities = request.app.state.client.status().entities
    return {entity.entity: entity.phase for entity in entities}
