"""HTTP for the SDK's administration client, over the simulated network.

aiohttp makes its own sockets; this transport of azure-core uses asyncio's streams instead, one
connection for each request.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.core.rest._http_response_impl_async import AsyncHttpResponseImpl
from azure.core.utils import case_insensitive_dict
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.administration import aio_admin_client

_TIMEOUT = 30.0


class SimulatedHttpTransport(AsyncHttpTransport[Any, Any]):
    """Sends each request on a connection of its own."""

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def __aenter__(self) -> SimulatedHttpTransport:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        pass

    async def send(self, request: Any, **options: Any) -> Any:
        """Send a request and read the whole answer."""
        url = urlsplit(request.url)
        writer = None
        try:
            async with asyncio.timeout(_TIMEOUT):
                reader, writer = await asyncio.open_connection(url.hostname, url.port)
                writer.write(_encoded(request, url.netloc, url.path, url.query))
                await writer.drain()
                return await _answer(request, reader)
        except (TimeoutError, EOFError) as exc:
            raise ServiceResponseError(str(exc) or type(exc).__name__, error=exc) from exc
        except OSError as exc:
            raise ServiceRequestError(str(exc), error=exc) from exc
        finally:
            if writer is not None:
                writer.close()


def _encoded(request: Any, host: str, path: str, query: str) -> bytes:
    body = request.content or b""
    if isinstance(body, str):
        body = body.encode()
    headers = {**request.headers, "Host": host, "Content-Length": str(len(body))}
    lines = [f"{request.method} {path}{'?' + query if query else ''} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _answer(request: Any, reader: asyncio.StreamReader) -> Any:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    _, status, reason = head[0].split(" ", 2)
    pairs = [line.partition(": ") for line in head[1:] if line]
    headers = case_insensitive_dict((name, value) for name, _, value in pairs)
    body = await reader.readexactly(int(headers.get("Content-Length", 0)))
    response = AsyncHttpResponseImpl(
        request=request,
        internal_response=None,
        status_code=int(status),
        reason=reason,
        content_type=headers.get("Content-Type", ""),
        headers=headers,
        stream_download_generator=None,
    )
    response._content = body  # noqa: SLF001 - there is no public way to make a read response
    return response


def admin_client(connection_string: str) -> ServiceBusAdministrationClient:
    """The SDK's administration client, on the simulated network."""
    return aio_admin_client(connection_string, transport=SimulatedHttpTransport())
