"""The primary as the deliverer sees it: what a link that cannot be opened says about a message."""

import pytest

from pairbus.client.errors import (
    ConnectionLostError,
    ConnectTimeoutError,
    LinkDetachedError,
    OperationTimeoutError,
)
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon.refusals import Cause, judge


class Unopened:
    """Connections whose links cannot be opened."""

    def __init__(self, error):
        self.error = error

    def sender(self, entity):
        raise self.error


def outcome_of(error, *, asks_limit=False):
    destinations = Destinations(Unopened(error), 1.0)
    if asks_limit:
        destinations.limit("orders")
    [outcome] = destinations.send([("orders", [b"message"])])
    return outcome


@pytest.mark.parametrize("condition", ["amqp:decode-error", "amqp:not-allowed"])
@pytest.mark.parametrize("asks_limit", [True, False])
def test_only_the_destination_waits_whose_link_is_refused(condition, asks_limit):
    outcome = outcome_of(LinkDetachedError(condition, "not here"), asks_limit=asks_limit)

    assert judge(outcome.condition).cause is Cause.DESTINATION
    assert condition in outcome.condition


def test_the_whole_primary_waits_if_the_connection_breaks_while_a_link_is_opened():
    outcome = outcome_of(ConnectionLostError("amqp:decode-error", "the handshake was cut off"))

    assert judge(outcome.condition).cause is Cause.PRIMARY


def test_the_whole_primary_waits_if_it_does_not_answer_a_connection():
    outcome = outcome_of(ConnectTimeoutError("connecting to contoso"))

    assert judge(outcome.condition).cause is Cause.PRIMARY


def test_only_the_destination_waits_that_does_not_answer_on_an_open_connection():
    outcome = outcome_of(OperationTimeoutError("attaching to orders"))

    assert judge(outcome.condition).cause is Cause.DESTINATION


def test_a_destination_that_does_not_exist_is_reported_as_missing():
    outcome = outcome_of(LinkDetachedError("amqp:not-found", "no such queue"))

    assert judge(outcome.condition).cause is Cause.MISSING
