"""How quickly sends succeed again in an outage, in seconds; other options at their defaults.

* `first_send`: the primary fails, `failover_interval=0`: how long the first send takes. The primary
  refuses connections; or is silent, and the link must be opened; or goes silent on an open link.
* `secondary_away`: failed over, the secondary refuses connections for a while, and a number of
  senders go on sending. `back_after` is when the last of them succeeded after the secondary was
  back; `raised` is how many sends raised an error. The secondary runs in a process of its own, as
  the service does: so it takes no processor time from the senders' interpreter.
* `pause`: 50 async senders fail over at the same moment, over TLS: the longest time for which the
  event loop was blocked; beside it, 50 SDK senders that open their links with a shared context.
"""

import asyncio
import multiprocessing
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import certifi
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType, aio
from azure.servicebus.exceptions import ServiceBusError

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace
from pairbus.administration import admin_client, aio_admin_client
from pairbus.aio import pair_namespace as aio_pair_namespace

AWAY = (0.3, 2.0, 10.0)  # seconds
SENDERS = (1, 4, 30, 80)
PAUSED = 50  # async senders that fail over together


@contextmanager
def world() -> Iterator[tuple[broker.RunningNamespace, broker.RunningNamespace]]:
    """Two namespaces in this process, so that their faults can be controlled."""
    with broker.run(namespace="contoso") as primary, broker.run(namespace="backup") as secondary:
        primary.create_queue("orders")
        yield primary, secondary


def options_for(secondary, kind=ServiceBusClient, **changes):
    """The default options, except the interval and `changes`."""
    return SendAvailabilityPairedNamespaceOptions(
        secondary=kind.from_connection_string(secondary.connection_string),
        secondary_admin=changes.pop("admin", None) or admin_client(secondary.connection_string),
        **{"primary_namespace": "contoso", "failover_interval": 0, **changes},
    )


# -- the first send

FAULTS = {
    # What happens, whether the link is open before, and the fault.
    "refused": (True, "refuse"),
    "silent_on_opening": (False, "silent"),
    "open_link_silent": (True, "silent"),
}


def first_send() -> Iterator[str]:
    """The first send after the primary failed, sync."""
    for name, (is_open, fault) in FAULTS.items():
        with world() as (primary, secondary):
            sdk = ServiceBusClient.from_connection_string(primary.connection_string)
            with (
                pair_namespace(sdk, options_for(secondary, require_secondary=True)) as client,
                client.get_queue_sender("orders") if is_open else _never_opened(client) as sender,
            ):
                getattr(primary.faults, fault)()
                started = time.perf_counter()
                sender.send_messages(ServiceBusMessage("a"))
                yield f"pairing_outage.first_send.{name} {time.perf_counter() - started:.2f} s"
                primary.faults.clear()


@contextmanager
def _never_opened(client):
    yield client.get_queue_sender("orders")


async def aio_first_send() -> AsyncIterator[str]:
    """The first send after the primary failed, async."""
    for name, (is_open, fault) in FAULTS.items():
        with world() as (primary, secondary):
            sdk = aio.ServiceBusClient.from_connection_string(primary.connection_string)
            async with secondary.aio_admin_client() as admin:
                options = options_for(
                    secondary, aio.ServiceBusClient, admin=admin, require_secondary=True
                )
                async with await aio_pair_namespace(sdk, options) as client:
                    sender = client.get_queue_sender("orders")
                    if is_open:
                        await sender.send_messages(ServiceBusMessage("opens"))
                    getattr(primary.faults, fault)()
                    started = time.perf_counter()
                    await sender.send_messages(ServiceBusMessage("a"))
                    seconds = time.perf_counter() - started
                    yield f"pairing_outage.aio.first_send.{name} {seconds:.2f} s"
                    primary.faults.clear()


# -- the secondary goes away while failed over


class FarSecondary:
    """A secondary in another process, which refuses connections on request.

    Args:
        connection_string: Its connection string.
        pipe: To its process.
    """

    def __init__(self, connection_string: str, pipe) -> None:
        self.connection_string = connection_string
        self._pipe = pipe

    def refuse(self, is_refusing: bool) -> None:
        """Refuse connections, or accept them again; returns when it is so."""
        self._pipe.send("refuse" if is_refusing else "clear")
        self._pipe.recv()


def _serve(pipe) -> None:
    with broker.run(namespace="backup") as secondary:
        pipe.send(secondary.connection_string)
        while (what := pipe.recv()) != "stop":
            getattr(secondary.faults, what)()
            pipe.send(what)


@contextmanager
def far_world() -> Iterator[tuple[broker.RunningNamespace, FarSecondary]]:
    """A primary in this process, which nobody uses, and a secondary in another."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        with broker.run(namespace="contoso") as primary:
            primary.create_queue("orders")
            yield primary, FarSecondary(here.recv(), here)
    finally:
        here.send("stop")
        process.join(10)


class Sending:
    """One sender that sends ten messages a second until `stop` is set."""

    def __init__(self, sender, stop: threading.Event) -> None:
        self.succeeded_at: list[float] = []
        self.raised = 0
        self._sender = sender
        self._stop = stop
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            try:
                self._sender.send_messages(ServiceBusMessage("a"))
                self.succeeded_at.append(time.perf_counter())
            except ServiceBusError:
                self.raised += 1

    def first_after(self, moment: float) -> float | None:
        """When the first send after `moment` succeeded; None if none has yet."""
        return next((at for at in self.succeeded_at if at > moment), None)


def secondary_away() -> Iterator[str]:
    """The secondary refuses connections for a while, with so many senders."""
    for away in AWAY:
        for count in SENDERS:
            with far_world() as (primary, secondary):
                sdk = ServiceBusClient.from_connection_string(primary.connection_string)
                with pair_namespace(sdk, options_for(secondary, require_secondary=True)) as client:
                    client.force_failover("orders")
                    stop = threading.Event()
                    senders = [client.get_queue_sender("orders") for _ in range(count)]
                    sending = [Sending(sender, stop) for sender in senders]
                    while not all(one.succeeded_at for one in sending):
                        time.sleep(0.05)
                    secondary.refuse(True)
                    time.sleep(away)
                    secondary.refuse(False)
                    back = time.perf_counter()
                    while any(one.first_after(back) is None for one in sending):
                        time.sleep(0.02)
                    stop.set()
                    for one in sending:
                        one.thread.join()
            after = max(one.first_after(back) or back for one in sending) - back
            name = f"pairing_outage.secondary_away.{away:g}s.{count}_senders"
            yield f"{name}.back_after {after:.2f} s"
            yield f"{name}.raised {sum(one.raised for one in sending)} sends"


class AioSending:
    """One async sender that sends ten messages a second until `stop` is set."""

    def __init__(self, sender, stop: asyncio.Event) -> None:
        self.succeeded_at: list[float] = []
        self.raised = 0
        self.task = asyncio.create_task(self._run(sender, stop))

    async def _run(self, sender, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await sender.send_messages(ServiceBusMessage("a"))
                self.succeeded_at.append(time.perf_counter())
            except ServiceBusError:
                self.raised += 1
            await asyncio.sleep(0.1)

    first_after = Sending.first_after


async def aio_secondary_away() -> AsyncIterator[str]:
    """The same with async senders."""
    for away in AWAY:
        for count in SENDERS:
            with far_world() as (primary, secondary):
                sdk = aio.ServiceBusClient.from_connection_string(primary.connection_string)
                async with aio_admin_client(secondary.connection_string) as admin:
                    options = options_for(
                        secondary, aio.ServiceBusClient, admin=admin, require_secondary=True
                    )
                    async with await aio_pair_namespace(sdk, options) as client:
                        await client.force_failover("orders")
                        stop = asyncio.Event()
                        senders = [client.get_queue_sender("orders") for _ in range(count)]
                        sending = [AioSending(sender, stop) for sender in senders]
                        while not all(one.succeeded_at for one in sending):
                            await asyncio.sleep(0.05)
                        secondary.refuse(True)
                        await asyncio.sleep(away)
                        secondary.refuse(False)
                        back = time.perf_counter()
                        while any(one.first_after(back) is None for one in sending):
                            await asyncio.sleep(0.02)
                        stop.set()
                        await asyncio.gather(*(one.task for one in sending))
            after = max(one.first_after(back) or back for one in sending) - back
            name = f"pairing_outage.aio.secondary_away.{away:g}s.{count}_senders"
            yield f"{name}.back_after {after:.2f} s"
            yield f"{name}.raised {sum(one.raised for one in sending)} sends"


# -- how long the event loop is blocked


async def longest_pause(work) -> float:
    """The longest time for which the event loop did nothing else while `work` ran."""
    worst = 0.0
    is_done = False

    async def tick() -> None:
        nonlocal worst
        last = time.perf_counter()
        while not is_done:
            await asyncio.sleep(0)
            now = time.perf_counter()
            worst, last = max(worst, now - last), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.05)
    worst = 0.0
    await work()
    is_done = True
    await ticking
    return worst


async def pauses() -> AsyncIterator[str]:
    """50 async senders that fail over together, and 50 of the SDK's that open their links."""
    with world() as (primary, secondary), tempfile.TemporaryDirectory() as folder:
        # As large as the bundle of a machine that talks to the service.
        bundle = Path(folder) / "bundle.pem"
        certificates = (secondary.certificate, primary.certificate)
        bundle.write_text(
            Path(certifi.where()).read_text() + "".join(map(Path.read_text, certificates))
        )

        def client(namespace, name, **more):
            return aio.ServiceBusClient(
                f"{name}.servicebus.windows.net",
                namespace.aio_credential(),
                custom_endpoint_address=f"sb://localhost:{namespace.port}",
                transport_type=TransportType.Amqp,
                **more,
            )

        context = ssl.create_default_context(cafile=str(bundle))
        raw = client(secondary, "backup", ssl_context=context)
        verify = {"connection_verify": str(bundle)}
        async with secondary.aio_admin_client() as admin:
            options = SendAvailabilityPairedNamespaceOptions(
                secondary=client(secondary, "backup", **verify),
                failover_interval=0,
                require_secondary=False,
            )
            # The queues are created beforehand: the application has no right to.
            for number in range(10):
                await admin.create_queue(f"contoso/x-servicebus-transfer/{number}")
            paired = await aio_pair_namespace(client(primary, "contoso", **verify), options)
            async with raw, paired:
                await paired.force_failover("orders")
                senders = [paired.get_queue_sender("orders") for _ in range(PAUSED)]
                bare = [
                    raw.get_queue_sender(f"contoso/x-servicebus-transfer/{number % 10}")
                    for number in range(PAUSED)
                ]

                async def send(those) -> None:
                    await asyncio.gather(
                        *(one.send_messages(ServiceBusMessage("a")) for one in those)
                    )

                ours = await longest_pause(lambda: send(senders))
                theirs = await longest_pause(lambda: send(bare))
                for one in bare:
                    await one.close()
        yield f"pairing_outage.aio.pause.{PAUSED}_paired_senders {ours * 1000:.0f} ms"
        yield f"pairing_outage.aio.pause.{PAUSED}_raw_senders {theirs * 1000:.0f} ms"
        yield f"pairing_outage.aio.pause.paired_over_raw {ours / theirs:.2f} ratio"


async def _collected(lines: AsyncIterator[str]) -> list[str]:
    return [line async for line in lines]


def run() -> Iterator[str]:
    """The figures, one line each."""
    yield from first_send()
    yield from asyncio.run(_collected(aio_first_send()))
    yield from asyncio.run(_collected(pauses()))
    yield from secondary_away()
    yield from asyncio.run(_collected(aio_secondary_away()))
