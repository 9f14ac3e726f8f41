"""A client of the embedded namespace."""

import pytest

from pairbus.client.aio import BulkConnection


@pytest.fixture
async def connection(ns):
    async with BulkConnection(ns.connection_string, timeout=10) as connection:
        yield connection
