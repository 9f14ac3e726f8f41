"""Tools for testing Service Bus code: fixtures, a pair's options, a fault proxy, a fake clock.

pytest loads it as a plugin; a test requests a namespace by the name of a fixture:

    def test_order_is_stored(servicebus):
        servicebus.create_queue("orders")
        with ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
            ...

`servicebus` is a fresh Standard namespace in memory for each test, with the limits of that tier;
`servicebus_premium` is a Premium one, which neither throttles nor refuses large messages.
`servicebus_session` is one for the whole run. `broker.run(tier="premium")` starts further ones.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pairbus.broker.auth.credentials import (
    OWNER,
    RECEIVER,
    SENDER,
    AioBrokerCredential,
    BrokerCredential,
)
from pairbus.broker.faults.proxy import FaultProxy
from pairbus.broker.run import RunningNamespace, run

if TYPE_CHECKING:
    import pytest

    from pairbus.options import SendAvailabilityPairedNamespaceOptions
else:
    try:
        import pytest
    except ModuleNotFoundError:  # the tools below are useful without pytest
        pytest = None

__all__ = [
    "OWNER",
    "RECEIVER",
    "SENDER",
    "AioBrokerCredential",
    "BrokerCredential",
    "FakeClock",
    "FaultProxy",
    "RunningNamespace",
    "pair_options",
    "run",
]


def pair_options(
    primary: RunningNamespace, secondary: RunningNamespace, *, aio: bool = False, **options: Any
) -> SendAvailabilityPairedNamespaceOptions:
    """Return the options that pair two embedded namespaces, for `pair_namespace`.

    Args:
        primary: Where messages go while all is well.
        secondary: Where the backlog queues are.
        aio: For `pairbus.aio.pair_namespace`.
        options: Any of `SendAvailabilityPairedNamespaceOptions`; they take precedence over the
            values set here. `syphon` need not be given for `enable_syphon`.
    """
    from pairbus.options import SendAvailabilityPairedNamespaceOptions, SyphonOptions

    filled: dict[str, Any] = {
        "primary_namespace": primary.name,
        "secondary": secondary.aio_client() if aio else secondary.client(),
        "secondary_admin": secondary.aio_admin_client() if aio else secondary.admin_client(),
    }
    if options.get("enable_syphon"):
        filled["syphon"] = SyphonOptions(
            primary=primary.connection_string, secondary=secondary.connection_string
        )
    return SendAvailabilityPairedNamespaceOptions(**{**filled, **options})


class FakeClock:
    """A clock that moves only by `advance`, for code that takes a clock as an argument.

    Calling it returns seconds since the epoch. `advance` moves it and then calls its subscribers,
    so that a broker that runs on it acts on everything that is due.
    """

    def __init__(self, start: float | None = None) -> None:
        self._now = time.time() if start is None else start
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> float:
        """Return the time it shows."""
        return self._now

    def __repr__(self) -> str:
        return f"<FakeClock {self._now:.3f}>"

    def advance(self, seconds: float) -> float:
        """Move the clock forward and return the new time."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        with self._lock:
            self._now += seconds
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
        return self._now

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each advance."""
        with self._lock:
            self._listeners.append(listener)


if pytest is not None:

    @pytest.fixture
    def servicebus() -> Iterator[RunningNamespace]:
        """A fresh Service Bus namespace in memory."""
        with run() as namespace:
            yield namespace

    @pytest.fixture
    def servicebus_standard() -> Iterator[RunningNamespace]:
        """A fresh Standard namespace in memory, whatever `PAIRBUS_BROKER_TIER` says."""
        with run(tier="standard") as namespace:
            yield namespace

    @pytest.fixture
    def servicebus_premium() -> Iterator[RunningNamespace]:
        """A fresh Premium namespace in memory: no throttling, messages of 1 MB and more."""
        with run(tier="premium") as namespace:
            yield namespace

    @pytest.fixture
    def servicebus_namespace() -> Iterator[Callable[..., RunningNamespace]]:
        """A function that starts namespaces for one test: `servicebus_namespace("contoso")`."""
        with contextlib.ExitStack() as stack:

            def start(namespace: str = "contoso", **options: Any) -> RunningNamespace:
                return stack.enter_context(run(namespace, **options))

            yield start

    @pytest.fixture(scope="session")
    def servicebus_session() -> Iterator[RunningNamespace]:
        """One Service Bus namespace in memory for the whole run; each parallel worker has one."""
        with run() as namespace:
            yield namespace
