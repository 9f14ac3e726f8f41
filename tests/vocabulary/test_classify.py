"""What an error means: the table, row by row."""

import struct

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus import exceptions as sdk
from azure.servicebus._pyamqp.error import AuthenticationException, ErrorCondition, TokenAuthFailure

from pairbus.classify import TABLE, Verdict, classify, condition_of
from pairbus.exceptions import OversizeError, PairUnavailableError, ReservedPropertyError


def bare(condition=None, inner=None):
    return sdk.ServiceBusError("failed", condition=condition, error=inner)


def auth(status):
    inner = TokenAuthFailure(status, b"no") if status != "none" else None
    return sdk.ServiceBusAuthenticationError(message="no", error=inner)


CASES = [
    (
        sdk.ServiceBusError("CBS Authentication Expired.", condition=b"amqp:internal-error"),
        Verdict.REOPEN,
    ),
    (
        sdk.ServiceBusError("Handler failed: Management Operation error occurred.."),
        Verdict.REOPEN,
    ),
    (sdk.OperationTimeoutError(), Verdict.OUTAGE),
    (TimeoutError(), Verdict.OUTAGE),
    (sdk.ServiceBusConnectionError(condition=b"amqp:socket-error"), Verdict.OUTAGE),
    (sdk.ServiceBusConnectionError(), Verdict.OUTAGE),
    (sdk.ServiceBusCommunicationError(), Verdict.OUTAGE),
    (sdk.ServiceBusConnectionError(condition=ErrorCondition.UnknownError), Verdict.REOPEN),
    (sdk.ServiceBusConnectionError(condition=b"amqp:link:detach-forced"), Verdict.REOPEN),
    (bare(b"amqp:internal-error"), Verdict.OUTAGE),
    (bare(b"com.microsoft:container-close"), Verdict.OUTAGE),
    (bare(b"com.microsoft:operation-cancelled"), Verdict.OUTAGE),
    (bare(b"com.microsoft:partition-not-owned"), Verdict.OUTAGE),
    (bare(b"com.microsoft:store-lock-lost"), Verdict.OUTAGE),
    (bare(b"amqp:not-allowed"), Verdict.REFUSED),
    (bare(b"com.microsoft:argument-error"), Verdict.REFUSED),
    (bare(b"amqp:not-implemented"), Verdict.REFUSED),
    (bare(b"amqp:precondition-failed"), Verdict.REFUSED),
    (bare(), Verdict.REFUSED),
    (bare(inner=OSError("unreachable")), Verdict.OUTAGE),
    (bare(inner=ServiceRequestError("authority unreachable")), Verdict.OUTAGE),
    (bare(inner=struct.error("bad number")), Verdict.REFUSED),
    (bare(inner=TypeError("cannot encode")), Verdict.REFUSED),
    (sdk.ServiceBusServerBusyError(), Verdict.BUSY),
    (sdk.ServiceBusQuotaExceededError(), Verdict.FULL),
    (sdk.MessagingEntityNotFoundError(), Verdict.MISSING),
    (sdk.MessagingEntityDisabledError(), Verdict.MISSING),
    (sdk.ServiceBusAuthorizationError(), Verdict.REFUSED),
    (sdk.MessageSizeExceededError(), Verdict.REFUSED),
    (auth(401), Verdict.REFUSED),
    (auth(403), Verdict.REFUSED),
    (auth(404), Verdict.REFUSED),
    (auth(500), Verdict.OUTAGE),
    (auth(503), Verdict.OUTAGE),
    (auth(0), Verdict.OUTAGE),
    (auth(None), Verdict.OUTAGE),
    (auth("none"), Verdict.OUTAGE),
    (
        # With a custom endpoint the SDK calls a refused token a connection error.
        sdk.ServiceBusConnectionError(error=TokenAuthFailure(401, b"no")),
        Verdict.REFUSED,
    ),
    (bare(inner=ClientAuthenticationError("no credential")), Verdict.OUTAGE),
    (ValueError("no"), Verdict.REFUSED),
    (TypeError("no"), Verdict.REFUSED),
    (struct.error("no"), Verdict.REFUSED),
    (ConnectionResetError(), Verdict.OUTAGE),
    (EOFError(), Verdict.OUTAGE),
    (ServiceRequestError("unreachable"), Verdict.OUTAGE),
    (RuntimeError("a bug"), Verdict.REFUSED),
    (ReservedPropertyError(["x-ms-path"]), Verdict.REFUSED),
    (OversizeError(2, 1), Verdict.REFUSED),
    (PairUnavailableError("q", None, None), Verdict.REFUSED),
]


@pytest.mark.parametrize(("error", "verdict"), CASES, ids=repr)
def test_verdict(error, verdict):
    assert classify(error) is verdict


def test_every_row_decides_something():
    decided = {next(row.what for row in TABLE if row.applies(error)) for error, _ in CASES}

    assert decided == {row.what for row in TABLE}
    assert all(row.reason for row in TABLE)


def test_applications_rule_comes_first_and_may_pass():
    def rule(error):
        return Verdict.OUTAGE if isinstance(error, sdk.ServiceBusServerBusyError) else None

    assert classify(sdk.ServiceBusServerBusyError(), rule) is Verdict.OUTAGE
    assert classify(sdk.ServiceBusQuotaExceededError(), rule) is Verdict.FULL


@pytest.mark.parametrize("answer", [ZeroDivisionError("a bug in the rule"), "no verdict"])
def test_rule_that_fails_is_logged_and_leaves_it_to_the_table(answer, caplog):
    def rule(error):
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert classify(sdk.ServiceBusQuotaExceededError(), rule) is Verdict.FULL
    assert "the built-in table is used" in caplog.text


def test_condition_is_text_whatever_the_sdk_made_of_it():
    assert condition_of(sdk.ServiceBusError("x", condition=b"amqp:not-found")) == "amqp:not-found"
    assert (
        condition_of(AuthenticationException(ErrorCondition.InternalError)) == "amqp:internal-error"
    )
    assert condition_of(ValueError()) == ""
