"""Single messages that wait for one link go as one list; each caller gets its own answer."""

from time import monotonic

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.classify import Verdict, classify
from pairbus.pairing._async.coalescer import Sharing
from pairbus.pairing._async.link import Link
from pairbus.pairing.core.coalescing import Coalescing
from pairbus.pairing.runtime import asleep, aspawn
from pairbus.pairing.turns import TurnTimeoutError
from pairbus.testing import FaultProxy

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def is_answer(error):
    return classify(error) not in (Verdict.OUTAGE, Verdict.REOPEN, Verdict.BUSY)


class Bench:
    """A link through a proxy that can be stalled, so that sends wait behind the first."""

    def __init__(self, link, proxy):
        self.link = link
        self.proxy = proxy
        self.tasks = []
        self.answers = {}

    async def queue(self, bodies, seconds=30, **message):
        """Start sends, each once the one before waits for its turn, is on the wire or over."""
        for body in bodies:
            before = self.state()
            self.tasks.append(aspawn(self.send, body, seconds, message))
            while self.state() == before:
                await asleep(0.002)

    def state(self):
        return self.link.waiting, self.link.busy_since, len(self.answers)

    async def send(self, body, seconds, message):
        deadline = monotonic() + seconds
        try:
            what = ServiceBusMessage(body, **message)
            self.answers[body] = await self.link.send(what, deadline=deadline)
        except Exception as error:
            self.answers[body] = error

    async def answered(self):
        """What each send returned or raised, once all have ended."""
        self.proxy.mode = "pass"
        assert all([await task.join(60) for task in self.tasks])
        answers, self.answers, self.tasks = self.answers, {}, []
        return answers


@pytest.fixture
async def bench(world):
    lists = []
    with FaultProxy(world.primary.connection_string) as proxy:
        async with world.primary_client(proxy.connection_string) as client:
            made = Bench(
                Link(
                    lambda: client.get_queue_sender("orders"),
                    "orders",
                    sharing=Sharing(Coalescing(), is_answer, lists.append),
                ),
                proxy,
            )
            made.lists = lists
            await made.link.open(deadline=monotonic() + 30)
            proxy.mode = "stall"
            yield made
            await made.link.close()


async def test_waiting_sends_go_as_one_list_in_order(world, bench):
    await bench.queue("abcde")
    answers = await bench.answered()

    assert answers == {"a": False, "b": True, "c": True, "d": True, "e": True}
    assert [len(sizes) for sizes in bench.lists] == [4]
    assert world.bodies(world.primary, "orders") == [b"a", b"b", b"c", b"d", b"e"]


async def test_other_sessions_and_partitions_go_apart(world, bench):
    await bench.queue("a")
    await bench.queue("bc", session_id="one")
    await bench.queue("de", partition_key="two")
    await bench.queue("f", session_id="one")
    await bench.answered()

    assert [len(sizes) for sizes in bench.lists] == [3, 2]
    assert world.bodies(world.primary, "orders") == [b"a", b"b", b"c", b"f", b"d", b"e"]


async def test_refused_list_is_repeated_one_by_one_and_each_caller_gets_its_own_answer(
    world, bench
):
    # The list is the second send that the broker sees. The second fault does not see it: for that
    # one, "a" is the first send, "b" the second, and "c" the third.
    world.primary.faults.reject("amqp:not-allowed", "orders", nth=2, times=1)
    world.primary.faults.reject("amqp:not-allowed", "orders", nth=3, times=1)
    await bench.queue("abcd")
    answers = await bench.answered()

    assert isinstance(answers.pop("c"), ServiceBusError)
    assert answers == {"a": False, "b": True, "d": True}
    assert world.bodies(world.primary, "orders") == [b"a", b"b", b"d"]

    bench.proxy.mode = "stall"
    bench.lists.clear()
    await bench.queue("efgh")
    await bench.answered()
    assert bench.lists == [], "an entity that refused a list gets no other"
    assert world.bodies(world.primary, "orders")[3:] == [b"e", b"f", b"g", b"h"]


async def test_argument_that_the_sdk_refuses_hurts_its_caller_alone(world, bench):
    await bench.queue("ab")
    await bench.queue("c", application_properties={"x": object()})
    await bench.queue("d")
    answers = await bench.answered()

    assert isinstance(answers.pop("c"), Exception)
    assert answers == {"a": False, "b": True, "d": True}
    assert world.bodies(world.primary, "orders") == [b"a", b"b", b"d"]


async def test_each_caller_keeps_its_own_deadline(world, bench):
    await bench.queue("ab")
    await bench.queue("c", seconds=1)
    await bench.queue("d")
    while "c" not in bench.answers:
        await asleep(0.01)
    answers = await bench.answered()

    assert isinstance(answers.pop("c"), TurnTimeoutError)
    assert answers == {"a": False, "b": True, "d": True}


async def test_caller_whose_deadline_passes_while_its_list_is_on_the_wire_leaves_alone(
    world, bench
):
    world.primary.faults.hang("orders", nth=2)
    await bench.queue("a")
    await bench.queue("b", seconds=4.5)
    await bench.queue("c", seconds=3)
    answers = await bench.answered()

    assert list(answers) == ["a", "c", "b"], "each at its own deadline"
    assert all(isinstance(answers[body], OperationTimeoutError) for body in "bc")


async def test_outage_gives_each_caller_an_error_of_its_own(world, bench):
    world.primary.faults.close("amqp:internal-error", "orders", nth=2)
    await bench.queue("abcd")
    answers = await bench.answered()

    assert answers.pop("a") is False
    assert all(isinstance(answer, ServiceBusError) for answer in answers.values())
    assert len({id(answer) for answer in answers.values()}) == 3
    assert len({str(answer) for answer in answers.values()}) == 1


def operations(place):
    """The sends in the ledger: by stage, the calls, the messages and what is charged."""
    sums = {}
    for row in pa.concat_tables(map(pq.read_table, place.glob("operations/*.parquet"))).to_pylist():
        if row["operation"] == "send" and row["stage"] != "ping":
            before = sums.get(row["stage"], (0, 0, 0))
            now = (row["count"], row["messages"], row["billable"])
            sums[row["stage"]] = tuple(map(sum, zip(before, now, strict=True)))
    return sums


@pytest.mark.parametrize("side", ["primary", "secondary"])
@pytest.mark.parametrize("coalesce", [True, False])
async def test_paired_sender_coalesces_on_both_sides_and_the_ledger_says_so(
    world, tmp_path, side, coalesce
):
    with FaultProxy(getattr(world, side).connection_string) as proxy:
        if side == "primary":
            client = await world.pair(
                world.primary_client(proxy.connection_string),
                ledger=str(tmp_path),
                coalesce=coalesce,
            )
        else:
            client = await world.pair(
                secondary=world.secondary_client(proxy.connection_string),
                ledger=str(tmp_path),
                coalesce=coalesce,
            )
            await client.force_failover("orders")
        sender = client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("opens"))
        proxy.mode = "stall"
        failed = []

        async def send(number):
            try:
                await sender.send_messages(ServiceBusMessage(f"{number}"))
            except ServiceBusError as error:
                failed.append(error)

        tasks = [aspawn(send, number) for number in range(8)]
        link = sender._primary if side == "primary" else sender._backlog.current  # noqa: SLF001 - who waits shows nowhere else
        while link.waiting < 7:
            await asleep(0.005)
        proxy.mode = "pass"
        assert all([await task.join(60) for task in tasks])
        await client.close()

    assert failed == []
    stage = "send_primary" if side == "primary" else "send_backlog"
    calls, messages, billable = operations(tmp_path)[stage]
    assert (messages, billable) == (9, 9)
    assert calls == (3 if coalesce else 9)
    found = world.messages(world.primary, "orders") if side == "primary" else world.backlog()
    assert sorted(m.body for m in found) == sorted([b"opens", *(b"%d" % n for n in range(8))])


async def test_list_that_meets_an_outage_is_redirected_message_by_message(world):
    client = await world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("opens"))
    world.primary.faults.hang("orders", take=False)
    failed = []

    async def send(number):
        try:
            await sender.send_messages(ServiceBusMessage(f"{number}"))
        except ServiceBusError as error:
            failed.append(error)

    tasks = [aspawn(send, number) for number in range(6)]
    while sender._primary.waiting < 5:  # noqa: SLF001 - who waits shows nowhere else
        await asleep(0.005)
    world.primary.kill()
    assert all([await task.join(60) for task in tasks])

    assert failed == []
    assert len(world.backlog()) == 6
