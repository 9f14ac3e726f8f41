"""One embedded namespace for a module, and a queue for each test."""

import uuid

import pytest

from pairbus import broker


@pytest.fixture(scope="module")
def ns():
    with broker.run(memory=True) as running:
        running.create_queue("small")
        running.create_queue("sessions", requires_session=True)
        yield running


@pytest.fixture
def queue(ns):
    name = f"q-{uuid.uuid4()}"
    with ns.admin_client() as admin:
        admin.create_queue(name)
        yield name
        admin.delete_queue(name)
