"""Errors that are kept: the same to the reader, with nothing behind them."""

import pytest
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.exceptions import ClientFaultedError, PairUnavailableError, bare, describe

ERRORS = [
    OperationTimeoutError(message="late"),
    ServiceBusError("text", error=OSError(5, "inner")),
    ConnectionRefusedError(111, "refused"),
    TimeoutError(),
    ClientFaultedError("because"),
    PairUnavailableError("orders", None, OSError("x")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_bare_error_is_the_same_to_the_reader(error):
    try:
        raise error from KeyError("cause")
    except Exception as raised:
        made = bare(raised)

    assert type(made) is type(error)
    assert describe(made, "") == describe(error, "")
    assert made is not error
    assert made.__traceback__ is made.__cause__ is made.__context__ is None
    assert "exc_traceback" not in vars(made) or made.exc_traceback is None


def test_error_that_cannot_be_made_again_is_kept_as_it_is():
    class Special(Exception):
        def __new__(cls, *, wanted):
            return super().__new__(cls)

        def __init__(self, *, wanted):
            super().__init__("special")

    error = Special(wanted=1)

    assert bare(error) is error
