"""The SDK's administration clients for a broker, without certificates.

The SDK's administration client always uses HTTPS. Its pipeline consists of policies, and the caller
may replace the one that sets headers: ours also changes the scheme to `http`, so that the client
reaches the broker's port without a certificate to trust. (A custom transport would do as well, but
azure-servicebus 7.14.3 ignores it.)
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
    from azure.servicebus.management import ServiceBusAdministrationClient

    options.setdefault("headers_policy", _plain_http())
    return ServiceBusAdministrationClient.from_connection_string(connection_string, **options)


def aio_admin_client(connection_string: str, **options: Any) -> AioAdministrationClient:
    """Return an asynchronous administration client for an embedded broker's connection string."""
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    options.setdefault("headers_policy", _plain_http())
    return ServiceBusAdministrationClient.from_connection_string(connection_string, **options)


def _plain_http() -> Any:
    from azure.core.pipeline.policies import HeadersPolicy

    class PlainHttpPolicy(HeadersPolicy):
        def on_request(self, request: Any) -> None:
            super().on_request(request)
            url: str = request.http_request.url
            request.http_request.url = url.replace("https://", "http://", 1)

    return PlainHttpPolicy()
