"""The SDK's administration clients for a broker, without certificates.

The SDK's administration client always speaks HTTPS. Its transport is public API, so a transport
that says `http` instead reaches the same port of the broker with no certificate to trust. Only the
scheme is changed, and only for connection strings that are for development.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from azure.servicebus.aio.management import (
        ServiceBusAdministrationClient as AioAdministrationClient,
    )
    from azure.servicebus.management import ServiceBusAdministrationClient


def admin_client(connection_string: str, **options: Any) -> ServiceBusAdministrationClient:
    """Return an administration client for an embedded broker's connection string."""
    from azure.core.pipeline.transport import RequestsTransport
    from azure.servicebus.management import ServiceBusAdministrationClient

    class PlainHttpTransport(RequestsTransport):  # type: ignore[misc]  # exported untyped
        def send(self, request: Any, **kwargs: Any) -> Any:
            request.url = request.url.replace("https://", "http://", 1)
            return super().send(request, **kwargs)

    options.setdefault("transport", PlainHttpTransport())
    return ServiceBusAdministrationClient.from_connection_string(connection_string, **options)


def aio_admin_client(connection_string: str, **options: Any) -> AioAdministrationClient:
    """Return an asynchronous administration client for an embedded broker's connection string."""
    from azure.core.pipeline.transport import AioHttpTransport
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    class PlainHttpTransport(AioHttpTransport):  # type: ignore[misc]  # exported untyped
        async def send(self, request: Any, **kwargs: Any) -> Any:
            request.url = request.url.replace("https://", "http://", 1)
            return await super().send(request, **kwargs)

    options.setdefault("transport", PlainHttpTransport())
    return ServiceBusAdministrationClient.from_connection_string(connection_string, **options)
