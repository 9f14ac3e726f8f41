"""A task in the background ends when it is cancelled, also if the SDK loses the cancellation."""

import asyncio
import contextlib
import threading
from types import SimpleNamespace

import pytest
from azure.servicebus.aio import ServiceBusClient

from pairbus import aio, broker
from pairbus.options import SendAvailabilityPairedNamespaceOptions, SyphonOptions
from pairbus.pairing import syphon_hook
from pairbus.pairing._async import lifecycle as lifecycle_module
from pairbus.pairing._async import pair as pair_module
from pairbus.pairing._async.lifecycle import Lifecycle
from pairbus.pairing._async.pair import Pair
from pairbus.pairing.runtime import AEvent, acheck_cancelled


async def test_lost_cancellation_is_raised_again():
    reached = []

    async def send_again_and_again():
        while True:
            acheck_cancelled()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                reached.append("lost")  # as `wait_for` does before Python 3.12

    task = asyncio.create_task(send_again_and_again())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reached == ["lost"]


async def test_task_that_is_not_cancelled_goes_on():
    acheck_cancelled()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(3600)
    acheck_cancelled()  # the time-out has taken its cancellation back


async def test_probes_of_backlog_queues_end_after_a_lost_cancellation(monkeypatch):
    client = SimpleNamespace(fully_qualified_namespace="a.example")
    options = SendAvailabilityPairedNamespaceOptions(secondary=client, backlog_cooldown=0)
    pair = Pair(client, client, "a", options, "client")
    path = pair.rotation.paths[0]
    probed, rounds = asyncio.Event(), []

    async def probe(pair, path, stopped):
        rounds.append(path)
        probed.set()
        with contextlib.suppress(asyncio.CancelledError):  # as `wait_for` does before Python 3.12
            await asyncio.Event().wait()

    monkeypatch.setattr(Pair, "_probe", probe)
    monkeypatch.setattr(pair_module, "aspawn", lambda *args, **kwargs: None)
    await pair.remove_queue(path, OSError("x"))
    task = asyncio.create_task(pair._run_probes(AEvent()))  # noqa: SLF001 - it ends with the client only
    await probed.wait()

    task.cancel()
    await asyncio.wait({task}, timeout=5)

    assert task.cancelled()
    assert rounds == [path]


@pytest.mark.sdk
@pytest.mark.slow
async def test_close_that_was_cancelled_can_be_repeated(tmp_path):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        options = aio.SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
            primary_namespace="contoso",
            ledger=tmp_path,
        )
        client = await aio.pair_namespace(
            ServiceBusClient.from_connection_string(primary.connection_string), options
        )
        async with asyncio.timeout(60):
            while not list(tmp_path.glob("status/*.json")):
                await asyncio.sleep(0.01)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)  # until it waits
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

        await client.close()

        assert not list(tmp_path.glob("status/*.json"))


class Client:
    """An SDK client; closing it waits for `go_on`."""

    fully_qualified_namespace = "a.example"

    def __init__(self):
        self.closing, self.go_on, self.closed = (asyncio.Event() for _ in range(3))

    async def close(self):
        self.closing.set()
        await self.go_on.wait()
        self.closed.set()


@pytest.mark.parametrize("cancelled", ["primary", "secondary"])
async def test_cancelled_close_is_reported_and_the_secondary_is_closed(cancelled):
    primary, secondary, seen = Client(), Client(), []
    if cancelled == "secondary":
        primary.go_on.set()
    options = SendAvailabilityPairedNamespaceOptions(secondary=secondary, observers=[seen.append])
    pair = Pair(primary, secondary, "a", options, "client")
    client = Lifecycle(primary, pair, secondary, None)
    closing = asyncio.create_task(client.close())
    await {"primary": primary, "secondary": secondary}[cancelled].closing.wait()

    closing.cancel()
    if cancelled == "primary":
        secondary.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    secondary.go_on.set()
    await asyncio.wait_for(secondary.closed.wait(), 10)
    primary.go_on.set()
    await client.close()

    assert [event.name for event in seen] == ["ClientClosed"]


async def test_the_time_to_close_the_other_client_starts_when_the_secondary_is_closed(monkeypatch):
    monkeypatch.setattr(lifecycle_module, "FAULT_AFTER", 0)
    primary, secondary = Client(), Client()
    primary.go_on.set()
    options = SendAvailabilityPairedNamespaceOptions(secondary=secondary)
    pair = Pair(primary, secondary, "a", options, "client")
    client = Lifecycle(primary, pair, secondary, None)
    client.syphon = SimpleNamespace(stop=lambda: None)

    closing = asyncio.create_task(client.close_secondary())
    await secondary.closing.wait()
    for _ in range(10):
        await asyncio.sleep(0)

    assert client.paired_side.state == "open"
    secondary.go_on.set()
    await closing
    await asyncio.wait_for(primary.closed.wait(), 10)
    assert client.paired_side.state == "faulted"


@pytest.mark.sdk
@pytest.mark.slow
async def test_syphon_that_starts_after_pairing_was_cancelled_is_stopped(monkeypatch):
    starting, go_on, stopped = threading.Event(), threading.Event(), threading.Event()

    def start(options):
        starting.set()
        assert go_on.wait(60)
        return SimpleNamespace(stop=stopped.set)

    monkeypatch.setattr(syphon_hook, "_start", start)
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        secondary.create_queue("contoso/x-servicebus-transfer/0")
        texts = primary.connection_string, secondary.connection_string
        options = aio.SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(texts[1]),
            primary_namespace="contoso",
            backlog_queue_count=1,
            require_secondary=True,
            enable_syphon=True,
            syphon=SyphonOptions(primary=texts[0], secondary=texts[1]),
        )
        client = ServiceBusClient.from_connection_string(texts[0])
        pairing = asyncio.create_task(aio.pair_namespace(client, options))
        assert await asyncio.to_thread(starting.wait, 60)
        pairing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pairing
        go_on.set()

        assert await asyncio.to_thread(stopped.wait, 60)
