"""The primary is gone for good: deliver elsewhere, and send nothing that has a receipt again."""

import time

import pytest

from pairbus import broker
from pairbus.envelope.encoded import open_message
from pairbus.exceptions import SyphonError
from pairbus.ledger.receipt_index import ReceiptIndex, list_in_doubt
from pairbus.ledger.receipts import ReceiptWriter
from pairbus.ledger.store import Store
from pairbus.options import SyphonOptions
from pairbus.runtime import LocalFiles, ThreadRuntime
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.deliverer import Deliverer
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon._sync.receiving import Browser, QueueReceiver
from pairbus.syphon._sync.survey import record_change
from pairbus.syphon.columns import select
from pairbus.syphon.delivery_settings import DeliverySettings
from pairbus.syphon.journal import Journal, JournalPage
from pairbus.syphon.retarget import ALL, Route, TargetRecord, highest_handed_out
from pairbus.syphon.rows import RowMaker
from pairbus.syphon.setup import Setup
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from tests.syphon.conftest import PREFIX, Pair, backlog_message, make_queues
from tests.syphon.test_deliverer import COLUMNS, restored

QUEUE = f"{PREFIX}/0"


class Drain:
    """Reads the backlog queue and delivers it, to one namespace or another."""

    def __init__(self, pair, folder):
        self.pair = pair
        self.pool = ConnectionPool(ThreadRuntime())
        self.state = StateDirectory(folder / "state").create()
        self.ledger = str(folder / "ledger")
        self.receipts = ReceiptWriter(self.ledger, client_id="syphon")
        self.backlog = BacklogQueues(ThreadRuntime(), self.link(pair.secondary, "settler"))

    def link(self, namespace, role):
        return NamespaceConnections(self.pool, Target(namespace.connection_string), role)

    def receive(self, count):
        receiver = QueueReceiver(self.link(self.pair.secondary, "reader"), is_ordered=True)
        got = receiver.receive(QUEUE, count, 1 << 30)
        maker = RowMaker(select((*COLUMNS, "deliveryCount"), aliases=True))
        opened = [open_message(payload, aliases=True) for _, payload in got]
        return restored(maker.batch_of(QUEUE, int(time.time() * 1e6), got, opened))

    def abandon(self, batch):
        assert self.backlog.abandon(QUEUE, batch.column("lockToken").to_pylist()[::-1])

    def deliver(self, namespace, batch, *, receipts=None, settling=None, route=None, index=None):
        deliverer = Deliverer(
            ThreadRuntime(), Destinations(self.link(namespace, "writer"), 10),
            settling or self.backlog, receipts or self.receipts.write, lambda _report: None,
            DeliverySettings(route=route or Route()), find_receipts=index and index.find,
        )  # fmt: skip
        deliverer.deliver(batch)
        deliverer.finish()

    def change(self, *, is_known=True):
        return record_change(
            ThreadRuntime(), Browser(self.link(self.pair.secondary, "survey")),
            Journal(self.state.path), [QUEUE], host="contoso-dr", former="contoso",
            is_known=is_known,
        )  # fmt: skip


class Crash(BaseException):
    """The task dies here; nobody catches it."""


class CannotSettle:
    def settle(self, *_):
        raise Crash


@pytest.fixture
def drain(tmp_path):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        make_queues(secondary, 1)
        for namespace in (primary, secondary):
            namespace.create_queue("orders")
        secondary.create_queue("invoices-new")
        pair = Pair(primary, secondary, 1, tmp_path)
        yield Drain(pair, tmp_path)
        pair.close()


def names(pair, namespace, entity, count):
    with_target = Pair(namespace, pair.secondary, 1, pair.folder)
    found = with_target.numbers(entity, count, timeout=30)
    with_target.close()
    return found


@pytest.mark.slow
def test_after_a_change_of_target_receipts_hold_and_the_rest_is_listed(drain):
    pair = drain.pair
    pair.fill([backlog_message("orders", n) for n in range(8)])

    # Given: 0 to 2 have a receipt and are not settled; 3 and 4 were sent and have none.
    first = drain.receive(3)
    with pytest.raises(Crash):
        drain.deliver(pair.primary, first, settling=CannotSettle())

    def no_receipt(_table):
        raise Crash

    second = drain.receive(2)
    with pytest.raises(Crash):
        drain.deliver(pair.primary, second, receipts=no_receipt)
    drain.abandon(second)
    drain.abandon(first)

    # When: the target changes.
    record = drain.change()
    drain.state.write_target(record)
    assert drain.state.target() == record
    route = Route("contoso-dr", {}, record.former, record.handed_out)
    index = ReceiptIndex(Store(drain.ledger), record.lowest)
    drain.deliver(pair.secondary, drain.receive(100), route=route, index=index)

    # Then: the new target has what has no receipt from before, in order; 3 and 4 are in doubt.
    assert names(pair, pair.secondary, "orders", 5) == [3, 4, 5, 6, 7]
    rows = list_in_doubt(drain.ledger)
    assert [row["sequence_number"] for row in rows] == [record.lowest[QUEUE] + n for n in (3, 4)]
    assert {row["reason"] for row in rows} == {"to contoso-dr/orders; contoso may have it too"}
    assert drain.receive(100).num_rows == 0


@pytest.mark.slow
def test_a_mapped_destination_gets_the_message_and_the_receipt_keeps_the_old_name(drain):
    drain.pair.fill([backlog_message("Invoices", 1)])
    tables = []
    route = Route("contoso-dr", {"invoices": "invoices-new"}, "contoso", {})
    drain.deliver(drain.pair.secondary, drain.receive(1), receipts=tables.append, route=route)
    assert names(drain.pair, drain.pair.secondary, "invoices-new", 1) == [1]
    (receipt,) = tables[0].to_pylist()
    assert (receipt["destination"], receipt["reason"]) == ("Invoices", "to contoso-dr/invoices-new")


@pytest.mark.slow
def test_messages_that_wait_for_the_new_target_are_not_in_doubt(drain):
    drain.pair.fill([backlog_message("orders", n) for n in range(3)])
    record = drain.change()
    returned = drain.receive(3)  # under the new target, which could not take them
    drain.abandon(returned)
    again = drain.receive(3)
    assert again.column("deliveryCount").to_pylist() == [1, 1, 1]
    route = Route("contoso-dr", {}, record.former, record.handed_out)
    drain.deliver(drain.pair.secondary, again, route=route)
    assert list_in_doubt(drain.ledger) == []


def page(*records):
    return JournalPage("q@1", b"".join(records), LocalFiles())


def mark(kind, number=0):
    return b"pairbus" + kind + number.to_bytes(8, "big")


@pytest.mark.parametrize(
    ("pages", "is_known", "expected"),
    [
        ([], True, 7),
        ([page(mark(b"?"), mark(b".", 9))], True, 9),
        ([page(mark(b"?"), mark(b".", 9), mark(b"?"))], True, 20_009),
        ([], False, ALL),
    ],
    ids=["browsed", "recorded", "open page", "state lost"],
)
def test_what_may_have_been_handed_out(pages, is_known, expected):
    assert highest_handed_out(3, 7, pages, is_known=is_known) == expected


def test_target_record_survives_its_json():
    record = TargetRecord("dr.example", "contoso", 12.5, {"q": 3}, {"q": 9})
    assert TargetRecord.from_json(record.to_json()) == record
    assert TargetRecord.from_json({}) == TargetRecord()


def options(**changes):
    given = {
        "primary": "Endpoint=sb://contoso.example/;SharedAccessKeyName=a;SharedAccessKey=b",
        "secondary": "Endpoint=sb://contoso-dr.example/;SharedAccessKeyName=a;SharedAccessKey=b",
        "ledger": "ledger",
    }
    return SyphonOptions(**{**given, **changes})


def test_the_target_may_be_the_secondary_and_the_primary_only_a_name(tmp_path):
    secondary = options().secondary
    given = options(
        primary="", primary_namespace="contoso", target=secondary, checkpoint=str(tmp_path)
    )
    setup = Setup.of(given)
    assert (setup.is_retargeted, setup.target_name, setup.primary_name) == (
        True, "contoso-dr", "contoso",
    )  # fmt: skip
    assert "SharedAccessKey" not in repr(given)
    assert not Setup.of(options(checkpoint=str(tmp_path))).is_retargeted


def test_a_target_without_a_ledger_and_a_map_into_the_backlog_are_refused(tmp_path):
    with pytest.raises(ValueError, match="target needs a ledger"):
        options(target=options().secondary, ledger=None)
    with pytest.raises(SyphonError, match="is a backlog queue"):
        Setup.of(options(destination_map={"orders": QUEUE}, checkpoint=str(tmp_path)))
    with pytest.raises(ValueError, match="destination_map must name two entities"):
        options(destination_map={"orders": ""})
