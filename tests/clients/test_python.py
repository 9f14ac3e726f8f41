"""Clients in Python on other AMQP libraries: Qpid Proton, and the SDK on uamqp."""

from collections.abc import Callable

import pytest

# Proton is compiled where there is no wheel, which takes some minutes.
pytestmark = [pytest.mark.clients, pytest.mark.long]

PROTON = "python-qpid-proton"
UAMQP = "uamqp"
Python = Callable[[str, str, str], None]


@pytest.mark.parametrize("scenario", ["plain", "plain_over_tls", "wrong_key"])
def test_qpid_proton(python: Python, scenario: str) -> None:
    python(PROTON, "with_proton.py", scenario)


@pytest.mark.parametrize("scenario", ["exchange", "sessions"])
def test_sdk_on_uamqp(python: Python, scenario: str) -> None:
    python(UAMQP, "with_uamqp.py", scenario)
