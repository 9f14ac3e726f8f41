"""Steady load: senders through the paired clients, readers on the primary.

Senders behave like an application: if a send raises, they send the same message again a little
later. Readers use the SDK as it is, and open a new receiver when theirs breaks.
"""

import asyncio
import contextlib
import itertools
import threading
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.demo.message_account import MessageAccount

BODY = b'{"item": "umbrella", "quantity": 1, "note": "' + b"x" * 200 + b'"}'
AGAIN = 0.25


class Load:
    """All senders and readers of the demo.

    Args:
        account: records the messages that were sent and received.
        pace: messages a second of each sender.
    """

    def __init__(self, account: MessageAccount, pace: float) -> None:
        self.account = account
        self._pause = 1.0 / pace
        self._sending = threading.Event()
        self._reading = threading.Event()
        self._sending.set()
        self._reading.set()
        self._senders: list[threading.Thread] = []
        self._readers: list[threading.Thread] = []

    # ------------------------------------------------------------------ senders

    def send_sync(self, client: Any, entity: str, kind: str, sessions: list[str]) -> None:
        """A thread that sends with the paired client of `pairbus`."""
        self._spawn(self._senders, self._sync_loop, client, entity, kind, sessions)

    def send_aio(self, connect: Callable[[], Any], plan: list[tuple[str, str, list[str]]]) -> None:
        """A thread with an event loop, and in it a task for each (entity, kind, sessions)."""
        ready = threading.Event()
        self._spawn(self._senders, self._aio_thread, connect, plan, ready)
        ready.wait(60)

    def _sync_loop(self, client: Any, entity: str, kind: str, sessions: list[str]) -> None:
        with getattr(client, f"get_{kind}_sender")(entity) as sender:
            send = partial(asyncio.to_thread, sender.send_messages)
            asyncio.run(self._send_loop(send, entity, sessions))

    def _aio_thread(
        self,
        connect: Callable[[], Any],
        plan: list[tuple[str, str, list[str]]],
        ready: threading.Event,
    ) -> None:
        async def main() -> None:
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(connect())
                ready.set()
                await asyncio.gather(*[self._aio_loop(client, *row) for row in plan])

        asyncio.run(main())

    async def _aio_loop(self, client: Any, entity: str, kind: str, sessions: list[str]) -> None:
        async with getattr(client, f"get_{kind}_sender")(entity) as sender:
            await self._send_loop(sender.send_messages, entity, sessions)

    async def _send_loop(
        self, send: Callable[[ServiceBusMessage], Awaitable[None]], entity: str, sessions: list[str]
    ) -> None:
        for number in itertools.count():
            if not self._sending.is_set():
                return
            session = sessions[number % len(sessions)] if sessions else None
            message = ServiceBusMessage(BODY, message_id=uuid.uuid4().hex, session_id=session)
            while True:
                try:
                    await send(message)
                    break
                except ServiceBusError:
                    self.account.add_retry(entity)
                    await asyncio.sleep(AGAIN)
            self.account.add_sent(str(message.message_id), entity, session, number)
            await asyncio.sleep(self._pause)

    # ------------------------------------------------------------------ readers

    def read(self, connection_string: str, entity: str, **what: Any) -> None:
        """A thread that reads a queue, a session of a queue, or a subscription of a topic."""
        self._spawn(self._readers, self._read_loop, connection_string, entity, what)

    def _read_loop(self, connection_string: str, entity: str, what: dict[str, Any]) -> None:
        stop = threading.Event()
        options = dict(what)
        subscription = options.pop("subscription", None)
        while self._reading.is_set():
            try:
                with ServiceBusClient.from_connection_string(
                    connection_string, retry_total=0
                ) as client:
                    if subscription:
                        receiver = client.get_subscription_receiver(entity, subscription, **options)
                    else:
                        receiver = client.get_queue_receiver(entity, **options)
                    with receiver:
                        self._drain(receiver, entity)
            except (ServiceBusError, OSError, ValueError):
                # The primary is down, as intended: retry until it is back.
                stop.wait(1.0)

    def _drain(self, receiver: Any, entity: str) -> None:
        while self._reading.is_set():
            for message in receiver.receive_messages(max_message_count=50, max_wait_time=1):
                receiver.complete_message(message)
                self.account.add_received(entity, str(message.message_id), message.sequence_number)

    # ------------------------------------------------------------------ the end

    def stop_sending(self, timeout: float = 60.0) -> None:
        """Stop the senders; each finishes its current message."""
        self._sending.clear()
        for thread in self._senders:
            thread.join(timeout)

    def stop_reading(self, timeout: float = 15.0) -> None:
        """End the readers."""
        self._reading.clear()
        for thread in self._readers:
            thread.join(timeout)

    def _spawn(self, among: list[threading.Thread], target: Any, *args: Any) -> None:
        name = f"demo-{target.__name__.strip('_')}-{len(among)}"
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        among.append(thread)
