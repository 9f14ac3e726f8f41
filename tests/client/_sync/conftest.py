# generated from tests/client/_async/conftest.py by tools/gen_unasync.py; edit that one
"""A client of the embedded namespace."""

import pytest

from pairbus.client import BulkConnection


@pytest.fixture
def connection(ns):
    with BulkConnection(ns.connection_string, timeout=10) as connection:
        yield connection
