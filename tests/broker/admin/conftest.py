"""The SDK's administration client, sync and aio, against a broker on a real port."""

import asyncio
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from pairbus import broker

_numbers = itertools.count()


class AioClient:
    """The asynchronous client with the look of the synchronous one."""

    def __init__(self, connect: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._open(connect))

    async def _open(self, connect: Any) -> Any:
        return connect()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            async def run() -> Any:
                result = method(*args, **kwargs)
                if inspect.isawaitable(result):
                    return await result
                return [item async for item in result]

            return self._runner.run(run())

        return call

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture(scope="module")
def ns() -> Iterator[Any]:
    with broker.run(tier="premium") as running:
        yield running


@pytest.fixture(scope="module", params=["sync", "aio"])
def world(request: pytest.FixtureRequest) -> str:
    """Which of the SDK's two clients a test uses."""
    return str(request.param)


@pytest.fixture(scope="module")
def client(world: str, ns: Any) -> Iterator[Any]:
    made = ns.admin_client() if world == "sync" else AioClient(ns.aio_admin_client)
    yield made
    made.close()


@pytest.fixture(scope="module")
def standard_client(world: str) -> Iterator[Any]:
    """The client of a Standard namespace, which has some properties that Premium refuses."""
    with broker.run(tier="standard", credits_per_second=0) as ns:
        made = ns.admin_client() if world == "sync" else AioClient(ns.aio_admin_client)
        yield made
        made.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    text = "".join(c if c.isalnum() and c.isascii() else "-" for c in request.node.name)
    return f"{text.strip('-')[:150]}-{next(_numbers)}"


@pytest.fixture
def topic(client: Any, name: str) -> str:
    client.create_topic(name)
    return name
