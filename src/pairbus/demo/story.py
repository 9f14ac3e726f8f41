"""The demo, act by act. Everything is real: processes, sockets, SDK, Spark, files."""

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusClient

from pairbus import (
    SendAvailabilityPairedNamespaceOptions,
    SyphonOptions,
    aio,
    pair_namespace,
)
from pairbus.broker.clients import admin_client, aio_admin_client
from pairbus.cli.config import Endpoint, Pair
from pairbus.cli.output import one_line, to_plain
from pairbus.demo.account import Account, Verdict, judge
from pairbus.demo.picture import Picture, Scene
from pairbus.demo.processes import BrokerProcess
from pairbus.demo.traffic import Load
from pairbus.events import Event, FailedOver, MessageBacklogged, Restored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRIMARY, SECONDARY = "contoso", "contoso-dr"
ORDERS, BILLS, NEWS = "orders", "bills", "news"
DETECTING = {ORDERS, NEWS}
SESSIONS = {"sync": ["north", "south"], "aio": ["east", "west"]}
RESTARTS = 5
ACTS = ["set up", "healthy", "outage", "recovery", "drain", "account"]


@dataclasses.dataclass(frozen=True)
class Tempo:
    """How long the acts last, in seconds, and how much is sent."""

    healthy: float = 12.0
    outage: float = 30.0
    after: float = 5.0
    failover_interval: float = 4.0
    ping_interval: float = 3.0
    pace: float = 25.0  # messages a second of each sender
    queues: int = 4
    drain: float | None = 400.0  # messages a second at most, so that one sees it


NORMAL = Tempo()
FAST = Tempo(
    healthy=3.0,
    outage=6.0,
    after=2.0,
    failover_interval=1.0,
    ping_interval=1.0,
    queues=2,
    drain=None,
)


class Story:
    """One run of the demo; call `run` once, then `close`."""

    def __init__(self, tempo: Tempo, picture: Picture, *, page: bool = True) -> None:
        self.tempo = tempo
        self.picture = picture
        self.folder = Path(tempfile.mkdtemp(prefix="pairbus-demo-"))
        self.ledger = self.folder / "ledger"
        self.account = Account()
        self.load = Load(self.account, tempo.pace)
        self.seconds: dict[str, float] = {}
        self.problems: list[str] = []
        self._wants_page = page
        self._stack = contextlib.ExitStack()
        self._stop = threading.Event()
        self._clients: list[Any] = []
        # Spark's active session belongs to a thread: all that is Spark is done by this one.
        self._spark_thread = ThreadPoolExecutor(1, thread_name_prefix="demo-spark")
        self._spark_started: Future[SparkSession] = Future()
        self._handle: Any = None
        self._restarts = 0
        self.primary = BrokerProcess(PRIMARY, self.folder / PRIMARY, self._entities())
        self.secondary = BrokerProcess(SECONDARY, self.folder / SECONDARY)

    # ------------------------------------------------------------------ the acts

    def run(self) -> Verdict:
        """Play all acts; return the verdict."""
        begun = time.monotonic()
        self._set_up()
        self._healthy()
        self._outage()
        self._recovery()
        self._drain()
        verdict = self._settle_accounts()
        self.seconds["all"] = round(time.monotonic() - begun, 1)
        return dataclasses.replace(verdict, seconds=dict(self.seconds))

    def _set_up(self) -> None:
        with self._act("two brokers, a pair, senders, readers"):
            # Spark takes its time to start, so it starts now, beside everything else.
            self._spark_started = self._spark_thread.submit(start_spark)
            for broker in (self.primary, self.secondary):
                broker.start()
                self._stack.callback(broker.stop)
                self.picture.say(f"{broker.namespace} runs as process {broker.pid}")
            self.picture.update(primary="up")
            client = self._pair()
            # The syphon runs before anything happens, as it does in a real deployment.
            self._syphon_starting = self._spark_thread.submit(self._start_syphon)
            self._start_page()
            self._start_load(client)
            self._spawn(self._watch)

    def _healthy(self) -> None:
        with self._act("sends go to the primary, readers read there"):
            self._wait(self.tempo.healthy)
            self._handle = self._syphon_starting.result(180)

    def _outage(self) -> None:
        with self._act(f"kill -9 {self.primary.pid}: the primary is gone, and the senders go on"):
            self.primary.kill()
            self.picture.update(primary="killed")
            self._wait(self.tempo.outage)

    def _recovery(self) -> None:
        with self._act("the primary starts again; pings find it"):
            self.primary.start()
            self.picture.update(primary="up")
            self._wait_for(
                lambda: set(self._phase_of().values()) == {"healthy"},
                60,
                "the pings did not find the primary",
            )
            self._wait(self.tempo.after)
            self.load.stop_sending()

    def _drain(self) -> None:
        with self._act("the syphon, on Spark, brings the backlog home"):
            self._wait_for(self._has_arrived, 300, "some messages did not arrive")
            self._handle.stop(60)

    def _has_arrived(self) -> bool:
        """Whether everything is home; a syphon that ended is started again, as a supervisor does.

        Spark gives a Python worker ten seconds to start, which a machine under load may miss.
        """
        if self.account.missing() == 0:
            return True
        if self._handle.error is not None and self._restarts < RESTARTS:
            self._restarts += 1
            self.picture.say(f"the syphon ended ({one_line(self._handle.error)[:80]}): again")
            self._handle = self._spark_thread.submit(self._start_syphon).result(180)
        return False

    def _start_syphon(self) -> Any:
        from pairbus.spark.syphon import start_syphon

        options = SyphonOptions(
            primary=self.primary.connection_string,
            secondary=self.secondary.connection_string,
            primary_namespace=PRIMARY,
            backlog_queue_count=self.tempo.queues,
            checkpoint=str(self.folder / "checkpoint"),
            ledger=str(self.ledger),
            max_messages_per_second=self.tempo.drain,
        )
        return start_syphon(options, spark=self._spark_started.result(180))

    def _settle_accounts(self) -> Verdict:
        with self._act("the ledger is reconciled and priced, on Spark"):
            self.load.stop_reading()
            self._stop.set()
            self._close_clients()
            balanced, books, cost = self._spark_thread.submit(self._books).result(400)
        return judge(
            self.account,
            detecting=DETECTING,
            balanced=balanced,
            books=books,
            cost=cost,
            seconds=self.seconds,
            problems=tuple(self.problems),
        )

    # ------------------------------------------------------------------ the parts

    def _entities(self) -> Path:
        detection = {
            "RequiresDuplicateDetection": True,
            "DuplicateDetectionHistoryTimeWindow": "PT1H",
        }
        config = {
            "UserConfig": {
                "Namespaces": [
                    {
                        "Name": PRIMARY,
                        "Queues": [
                            {"Name": ORDERS, "Properties": {"RequiresSession": True, **detection}},
                            {"Name": BILLS, "Properties": {}},
                        ],
                        "Topics": [
                            {
                                "Name": NEWS,
                                "Properties": detection,
                                "Subscriptions": [{"Name": "all", "Properties": {}}],
                            }
                        ],
                    }
                ],
                "Logging": {"Type": "File"},
            }
        }
        path = self.folder / "entities.json"
        path.write_text(json.dumps(config, indent=2))
        return path

    def _options(
        self, secondary: Any, secondary_admin: Any
    ) -> SendAvailabilityPairedNamespaceOptions:
        return SendAvailabilityPairedNamespaceOptions(
            secondary=secondary,
            secondary_admin=secondary_admin,
            primary_namespace=PRIMARY,
            backlog_queue_count=self.tempo.queues,
            failover_interval=self.tempo.failover_interval,
            ping_primary_interval=self.tempo.ping_interval,
            send_timeout=5.0,
            ledger=str(self.ledger),
            observers=[self._observe],
        )

    def _pair(self) -> Any:
        primary = ServiceBusClient.from_connection_string(
            self.primary.connection_string, retry_total=0
        )
        secondary = ServiceBusClient.from_connection_string(
            self.secondary.connection_string, retry_total=0
        )
        admin = self._stack.enter_context(admin_client(self.secondary.connection_string))
        client = pair_namespace(primary, self._options(secondary, admin))
        self._clients.append(client)
        self._stack.callback(client.close)
        return client

    @contextlib.asynccontextmanager
    async def _pair_aio(self) -> Any:
        from azure.servicebus.aio import ServiceBusClient as AioClient

        primary = AioClient.from_connection_string(self.primary.connection_string, retry_total=0)
        secondary = AioClient.from_connection_string(
            self.secondary.connection_string, retry_total=0
        )
        async with (
            aio_admin_client(self.secondary.connection_string) as admin,
            await aio.pair_namespace(primary, self._options(secondary, admin)) as client,
        ):
            self._clients.append(client)
            yield client

    def _start_load(self, client: Any) -> None:
        load = self.load
        for session in (*SESSIONS["sync"], *SESSIONS["aio"]):
            load.read(self.primary.connection_string, ORDERS, session_id=session)
        load.read(self.primary.connection_string, BILLS)
        load.read(self.primary.connection_string, NEWS, subscription="all")
        load.send_sync(client, ORDERS, "queue", SESSIONS["sync"])
        load.send_sync(client, BILLS, "queue", [])
        load.send_aio(self._pair_aio, [(ORDERS, "queue", SESSIONS["aio"]), (NEWS, "topic", [])])

    def _start_page(self) -> None:
        if not self._wants_page:
            return
        try:
            from pairbus.web.serve import serving
        except ModuleNotFoundError as exc:
            self.picture.say(f"no live page: {exc.name} is missing (pip install 'pairbus[web]')")
            return
        pair = Pair(
            name="demo",
            primary=Endpoint(self.primary.connection_string),
            secondary=Endpoint(self.secondary.connection_string),
            explicit_namespace=PRIMARY,
            backlog_queue_count=self.tempo.queues,
            ledger=str(self.ledger),
        )
        page = self._stack.enter_context(serving(pair, tick=1.0, refresh=2.0))
        self.page = page
        self.picture.update(page=page.link)
        self.picture.say(f"live page: {page.link}")

    def _close_clients(self) -> None:
        """Close the paired clients, so that their ledgers are complete."""
        self._clients[0].close()  # the aio client closed with its senders

    def _books(self) -> tuple[bool, str, dict[str, Any]]:
        spark = self._spark_started.result()
        from pairbus.ledger.prices import load_prices
        from pairbus.spark.books import balance
        from pairbus.spark.report import cost_report

        books = balance(spark, str(self.ledger))
        prices = load_prices()
        report = cost_report(spark, str(self.ledger), prices, subscriptions={NEWS: 1})
        cost = {
            "currency": report.currency,
            "prices_of": report.prices_of,
            "total": report.total.spent,
            "extra": report.extra.spent,
            "operations": report.total.operations,
            "stages": [
                {
                    "stage": line.name[0],
                    "is_derived": "derived" in line.name,
                    "messages": line.messages,
                    "operations": line.operations,
                    "cost": line.spent,
                }
                for line in report.by_stage
            ],
        }
        is_whole = books.totals.get("lost", 0) == 0
        return is_whole, books.verdict, to_plain(cost)

    # ------------------------------------------------------------------ watching

    def _observe(self, event: Event) -> None:
        match event:
            case MessageBacklogged():
                self.account.put_aside(event.message_ids, event.backlog_queue)
            case FailedOver():
                self.picture.say(f"failed over: {event.entity} ({event.reason[:80]})")
            case Restored():
                self.picture.say(f"restored: {event.entity}, by {event.by}")

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
                if self._handle is not None:
                    with contextlib.suppress(Exception):
                        drained = int(self._handle.status().get("forwarded") or 0)
                self.picture.update(
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
        self.picture.act(text)
        yield
        self.seconds[ACTS[self.picture.scene.act]] = round(time.monotonic() - begun, 1)

    def _wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _wait_for(self, condition: Callable[[], bool], timeout: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                self.problems.append(otherwise)
                self.picture.say(otherwise)
                return
            self._stop.wait(0.2)

    def _spawn(self, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=f"demo-{target.__name__}", daemon=True).start()

    def environment(self) -> dict[str, str]:
        """What to export to play with the pair while it is up."""
        return {
            "PAIRBUS_PRIMARY": self.primary.connection_string,
            "PAIRBUS_SECONDARY": self.secondary.connection_string,
            "PAIRBUS_PRIMARY_NAMESPACE": PRIMARY,
            "PAIRBUS_LEDGER": str(self.ledger),
            "PAIRBUS_CHECKPOINT": str(self.folder / "checkpoint"),
        }

    def close(self) -> None:
        """End everything that was started, and remove the folder."""
        self._stop.set()
        try:
            self.load.stop_sending(5)
            self.load.stop_reading(5)
            with contextlib.suppress(Exception):
                if self._handle is not None:
                    self._handle.stop(10)
            if self._spark_started.done() and not self._spark_started.exception():
                self._spark_started.result().stop()
            self._spark_thread.shutdown(wait=False, cancel_futures=True)
            self._stack.close()
        finally:  # also when a second Ctrl-C comes in between
            for broker in (self.primary, self.secondary):
                broker.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


def start_spark() -> "SparkSession":
    """A warm session: the first job, and the first Python worker, are the slow ones."""
    from pairbus.spark.session import get_session

    spark = get_session(master="local[2]", app_name="pairbus demo")
    spark.sparkContext.parallelize(range(2), 2).map(str).count()
    return spark


def quiet_logs() -> None:
    """The SDK and Spark tell every broken connection; in the demo that is the plot, not news."""
    for name in ("azure", "uamqp", "py4j", "pairbus"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")


def play(tempo: Tempo, *, silent: bool = False, page: bool = True) -> tuple[Verdict, Story]:
    """Play the demo; the story is still up, and the caller closes it."""
    quiet_logs()
    picture = Picture(Scene(ACTS), silent=silent)
    story = Story(tempo, picture, page=page)
    try:
        with picture:
            return story.run(), story
    except BaseException:
        story.close()
        raise
