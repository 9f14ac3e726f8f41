"""Runs the demo, act by act, with real processes, sockets, SDK, Spark and files."""

import contextlib
import dataclasses
import logging
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairbus import PairedClient, aio
from pairbus.administration import admin_client
from pairbus.demo.broker_process import BrokerProcess
from pairbus.demo.display import Display, Progress
from pairbus.demo.load import Load
from pairbus.demo.message_account import MessageAccount, Verdict, judge
from pairbus.demo.setup import (
    BILLS,
    DETECTING,
    NEWS,
    ORDERS,
    PRIMARY,
    SECONDARY,
    SESSIONS,
    DemoPair,
    Timing,
    run_reports,
    start_spark,
    write_entities,
)
from pairbus.events import Event, FailedOver, MessageBacklogged, Restored
from pairbus.monitoring.formatting import brief, one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pairbus.spark.syphon import SyphonHandle

SPARK_START = 400.0  # seconds: on a busy machine Java takes minutes
ACTS = ["set up", "healthy", "outage", "recovery", "drain", "account"]


class Scenario:
    """One run of the demo; call `run` once, then `close`."""

    def __init__(self, timing: Timing, display: Display, *, page: bool = True) -> None:
        self.timing = timing
        self.display = display
        self.folder = Path(tempfile.mkdtemp(prefix="pairbus-demo-"))
        self.account = MessageAccount()
        self.load = Load(self.account, timing.pace)
        self.seconds: dict[str, float] = {}
        self.problems: list[str] = []
        self._wants_page = page
        self._stack = contextlib.ExitStack()
        self._stop = threading.Event()
        self._clients: list[PairedClient | aio.PairedClient] = []
        self._failed_over: Counter[str] = Counter()  # clients by entity
        # Spark's active session belongs to a thread: this one makes all calls to Spark.
        self._spark_thread = ThreadPoolExecutor(1, thread_name_prefix="demo-spark")
        self._spark_started: Future[SparkSession] = Future()
        self._syphon: SyphonHandle | None = None
        entities = write_entities(self.folder / "entities.json")
        self.primary = BrokerProcess(PRIMARY, self.folder / PRIMARY, entities)
        self.secondary = BrokerProcess(SECONDARY, self.folder / SECONDARY)

    # ------------------------------------------------------------------ the acts

    def run(self) -> Verdict:
        """Run all acts; return the verdict."""
        begun = time.monotonic()
        self._set_up()
        self._healthy()
        self._outage()
        self._recovery()
        self._drain()
        verdict = self._account()
        self.seconds["all"] = round(time.monotonic() - begun, 1)
        return dataclasses.replace(verdict, seconds=dict(self.seconds))

    def _set_up(self) -> None:
        with self._act("two brokers, a pair, senders, readers"):
            # Spark starts slowly, so it starts now, in parallel with everything else.
            self._spark_started = self._spark_thread.submit(start_spark)
            for broker in (self.primary, self.secondary):
                broker.start()
                self._stack.callback(broker.stop)
                self.display.say(f"{broker.namespace} runs as process {broker.pid}")
            self.display.update(primary="up")
            self.pair = DemoPair.of(
                self.primary.connection_string,
                self.secondary.connection_string,
                self.folder,
                self.timing,
            )
            self._sync_client = self._stack.enter_context(contextlib.ExitStack())
            client = self._sync_client.enter_context(self.pair.client(self._observe))
            self._clients.append(client)
            # The syphon runs before the outage, as it does in a real deployment.
            self._syphon_starting = self._spark_thread.submit(
                lambda: self.pair.start_syphon(self._spark_started.result(SPARK_START))
            )
            self._start_page()
            self._start_load(client)
            threading.Thread(target=self._watch, name="demo-watch", daemon=True).start()

    def _healthy(self) -> None:
        with self._act("sends go to the primary, readers read there"):
            self._stop.wait(self.timing.healthy)
            if not self._syphon_starting.done():
                self.display.say("waiting until Spark has started the syphon")
            self._syphon = self._syphon_starting.result(SPARK_START)

    def _outage(self) -> None:
        with self._act(f"kill -9 {self.primary.pid}: the primary is down; senders continue"):
            self.primary.kill()
            self.display.update(primary="killed")
            self._stop.wait(self.timing.outage)

    def _recovery(self) -> None:
        with self._act("the primary starts again; pings detect it"):
            self.primary.start()
            self.display.update(primary="up")
            self._wait_for(
                lambda: set(self._phase_of().values()) == {"healthy"},
                60,
                "no ping succeeded",
            )
            self._stop.wait(self.timing.after)
            self.load.stop_sending()

    def _drain(self) -> None:
        with self._act("the syphon, on Spark, forwards the backlog"):
            syphon = self._syphon_starting.result()
            self._wait_for(
                lambda: self.account.missing() == 0 or syphon.error is not None,
                300,
                "some messages did not arrive",
            )
            if syphon.error is not None:
                self.problems.append(f"the syphon ended: {one_line(syphon.error)}")
            syphon.stop(60)

    def _account(self) -> Verdict:
        with self._act("the ledger is reconciled and priced, on Spark"):
            self.load.stop_reading()
            self._stop.set()
            self._sync_client.close()  # the aio client is closed: now the ledger is complete
            balanced, reconciliation, cost = self._spark_thread.submit(
                run_reports, self._spark_started.result(), self.pair.require_ledger()
            ).result(400)
        return judge(
            self.account,
            detecting=DETECTING,
            balanced=balanced,
            reconciliation=reconciliation,
            cost=cost,
            seconds=self.seconds,
            problems=tuple(self.problems),
        )

    # ------------------------------------------------------------------ the parts

    def _start_load(self, client: PairedClient) -> None:
        load = self.load
        for session in (*SESSIONS["sync"], *SESSIONS["aio"]):
            load.read(self.primary.connection_string, ORDERS, session_id=session)
        load.read(self.primary.connection_string, BILLS)
        load.read(self.primary.connection_string, NEWS, subscription="all")
        load.send_sync(client, ORDERS, "queue", SESSIONS["sync"])
        load.send_sync(client, BILLS, "queue", [])
        load.send_aio(self._aio_client, [(ORDERS, "queue", SESSIONS["aio"]), (NEWS, "topic", [])])

    @contextlib.asynccontextmanager
    async def _aio_client(self) -> AsyncIterator[aio.PairedClient]:
        async with self.pair.aio_client(self._observe) as client:
            self._clients.append(client)
            yield client

    def _start_page(self) -> None:
        if not self._wants_page:
            return
        try:
            from pairbus.dashboard.serve import serving
        except ModuleNotFoundError as exc:
            self.display.say(f"no live page: {exc.name} is missing (pip install 'pairbus[web]')")
            return
        page = self._stack.enter_context(serving(self.pair, tick=1.0, refresh=2.0))
        self.display.show_page(page.link)

    # ------------------------------------------------------------------ watching

    def _observe(self, event: Event) -> None:
        match event:
            case MessageBacklogged():
                self.account.add_backlogged(
                    event.message_ids, event.backlog_queue, is_uncertain=event.is_uncertain
                )
            case FailedOver():
                self._failed_over[event.entity] += 1
                others = self._failed_over[event.entity]
                text = brief(event.reason) if others == 1 else f"{others} clients"
                self.display.say(f"failed over: {event.entity}, {text}")
            case Restored():
                self._failed_over[event.entity] -= 1
                left = self._failed_over[event.entity]
                rest = f"; {left} client still failed over" if left else ""
                self.display.say(f"restored: {event.entity}, by {event.by}{rest}")

    def _phase_of(self) -> dict[str, str]:
        """Each entity's phase: the worst that either client, sync or aio, knows."""
        worst: dict[str, str] = {}
        for client in self._clients:
            for entity in client.status().entities:
                if worst.get(entity.entity, "healthy") == "healthy":
                    worst[entity.entity] = entity.phase
        return worst

    def _watch(self) -> None:
        with admin_client(self.secondary.connection_string) as admin:
            while not self._stop.wait(0.5):
                depth = 0
                with contextlib.suppress(Exception):
                    depth = sum(
                        queue.active_message_count or 0
                        for queue in admin.list_queues_runtime_properties()
                    )
                drained = 0
                if self._syphon is not None:
                    with contextlib.suppress(Exception):
                        drained = int(self._syphon.status().get("forwarded") or 0)
                self.display.update(
                    counts=self.account.counts(),
                    backlog=depth,
                    drained=drained,
                    to_drain=len(self.account.backlogged),
                    phases=self._phase_of(),
                )

    # ------------------------------------------------------------------ helpers

    @contextlib.contextmanager
    def _act(self, text: str) -> Any:
        begun = time.monotonic()
        self.display.act(text)
        yield
        self.seconds[ACTS[self.display.progress.act]] = round(time.monotonic() - begun, 1)

    def _wait_for(self, condition: Callable[[], bool], timeout: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                self.problems.append(otherwise)
                self.display.say(otherwise)
                return
            self._stop.wait(0.2)

    def close(self) -> None:
        """End everything that was started, and remove the folder."""
        self._stop.set()
        try:
            self.load.stop_sending(5)
            self.load.stop_reading(5)
            with contextlib.suppress(Exception):
                if self._syphon is not None:
                    self._syphon.stop(10)
            if self._spark_started.done() and not self._spark_started.exception():
                self._spark_started.result().stop()
            self._spark_thread.shutdown(wait=False, cancel_futures=True)
            self._stack.close()
        finally:  # also when a second Ctrl-C comes in between
            for broker in (self.primary, self.secondary):
                broker.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


def quiet_logs() -> None:
    """Silence the loggers of the SDK and Spark: broken connections are intended here."""
    for name in ("azure", "uamqp", "py4j", "pairbus"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")


def play(timing: Timing, *, drawn: bool = False, page: bool = True) -> tuple[Verdict, Scenario]:
    """Run the demo; the scenario is still up, and the caller closes it."""
    quiet_logs()
    display = Display(Progress(ACTS), drawn=drawn)
    scenario = Scenario(timing, display, page=page)
    try:
        with display:
            return scenario.run(), scenario
    except BaseException:
        scenario.close()
        raise
