"""The primary as the deliverer sees it: what a link that cannot be opened says about a message."""

import pytest

from pairbus.client.errors import ClientError
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon.refusals import Cause, judge


class Unopened:
    """Connections whose links cannot be opened."""

    def __init__(self, condition):
        self.condition = condition

    def sender(self, entity):
        raise ClientError(self.condition, "the handshake was cut off")


@pytest.mark.parametrize("condition", ["amqp:decode-error", "amqp:not-allowed"])
@pytest.mark.parametrize("asks_limit", [True, False])
def test_a_message_is_not_at_fault_for_a_link_that_cannot_be_opened(condition, asks_limit):
    destinations = Destinations(Unopened(condition), 1.0)
    if asks_limit:
        destinations.limit("orders")

    [outcome] = destinations.send([("orders", [b"message"])])

    assert judge(outcome.condition).cause is Cause.PRIMARY
    assert condition in outcome.description


def test_a_destination_that_does_not_exist_is_reported_as_missing():
    [outcome] = Destinations(Unopened("amqp:not-found"), 1.0).send([("orders", [b"message"])])

    assert judge(outcome.condition).cause is Cause.MISSING
