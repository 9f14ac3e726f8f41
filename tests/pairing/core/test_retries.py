"""Which failed attempts on the primary are made again, and when."""

from dataclasses import replace

import pytest

from pairbus.classify import Verdict
from pairbus.pairing.core.retries import QUICK_BACKOFF, Retries, RetrySettings

SDK = RetrySettings(total=3, factor=0.8, maximum=120.0, is_fixed=False)
BROKEN = {"is_broken": True, "is_silent": False}
ANSWERED = {"is_broken": False, "is_silent": False}
SILENT = {"is_broken": False, "is_silent": True}


def waits(retries, verdict, failure):
    """The waits before the attempts that follow if each fails alike."""
    found = []
    while (wait := retries.wait(verdict, **failure)) is not None:
        found.append(wait)
        assert len(found) < 20
    return found


def test_busy_service_is_asked_again_with_the_waits_of_the_sdk():
    assert waits(Retries(SDK, True), Verdict.BUSY, ANSWERED) == [1.6, 3.2, 6.4]


def test_waits_are_fixed_or_limited_if_the_application_says_so():
    fixed, limited = replace(SDK, is_fixed=True), replace(SDK, maximum=2.0)
    assert waits(Retries(fixed, True), Verdict.BUSY, ANSWERED) == [0.8, 0.8, 0.8]
    assert waits(Retries(limited, True), Verdict.BUSY, ANSWERED) == [1.6, 2.0, 2.0]


def test_outage_is_retried_quickly():
    assert waits(Retries(SDK, False), Verdict.OUTAGE, BROKEN) == [QUICK_BACKOFF] * 3


def test_refused_connection_is_retried_once_and_immediately_where_failover_is_immediate():
    settings = replace(SDK, is_immediate=True)
    assert waits(Retries(settings, False), Verdict.OUTAGE, BROKEN) == [0.0]
    none = replace(settings, total=0)
    assert waits(Retries(none, False), Verdict.OUTAGE, BROKEN) == []


@pytest.mark.parametrize("is_immediate", [True, False])
def test_host_that_is_silent_while_a_link_opens_is_not_asked_again(is_immediate):
    settings = replace(SDK, is_immediate=is_immediate)
    assert waits(Retries(settings, False), Verdict.OUTAGE, SILENT) == []


def test_link_that_was_open_and_broke_is_opened_once_more_without_any_retries():
    none = replace(SDK, total=0)
    assert waits(Retries(none, True), Verdict.OUTAGE, BROKEN) == [0.0]
    assert waits(Retries(none, False), Verdict.OUTAGE, BROKEN) == []
    assert waits(Retries(replace(none, reopen=False), True), Verdict.OUTAGE, BROKEN) == []


@pytest.mark.parametrize("reopen", [True, False])
def test_detached_link_is_opened_once_more_whatever_the_application_says(reopen):
    none = replace(SDK, total=0, reopen=reopen)
    assert waits(Retries(none, True), Verdict.REOPEN, ANSWERED) == [0.0]


def test_link_that_is_detached_again_after_its_reopen_is_retried_as_an_outage():
    assert waits(Retries(SDK, True), Verdict.REOPEN, ANSWERED) == [0.0] + [QUICK_BACKOFF] * 3
