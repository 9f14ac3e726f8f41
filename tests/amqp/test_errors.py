"""Errors carry condition, description and info, over the wire and between processes."""

import pickle

from pairbus.amqp import AmqpError, ProtocolError
from pairbus.amqp.composite import decode_composite
from pairbus.amqp.performatives import Error


class StatusError(AmqpError):
    """An error whose constructor has different arguments."""

    def __init__(self, status: int) -> None:
        super().__init__("amqp:internal-error", f"status {status}", {"status": status})
        self.status = status


def test_error_says_condition_and_description():
    assert str(AmqpError("amqp:not-found")) == "amqp:not-found"
    assert str(AmqpError("amqp:not-found", "no queue")) == "amqp:not-found: no queue"


def test_error_survives_pickling_with_its_own_fields():
    again = pickle.loads(pickle.dumps(StatusError(503)))
    assert type(again) is StatusError
    assert (again.condition, again.description, again.status) == (
        "amqp:internal-error", "status 503", 503
    )  # fmt: skip
    assert again.info == {"status": 503}
    assert type(pickle.loads(pickle.dumps(ProtocolError("amqp:decode-error")))) is ProtocolError


def test_error_crosses_the_wire():
    error, _ = decode_composite(Error.of(StatusError(503)).encode())
    assert (error.condition, error.description, error.info) == (
        "amqp:internal-error", "status 503", {"status": 503}
    )  # fmt: skip
