"""A queue that cannot be read is not an empty queue."""

import socket

import pytest

from pairbus import broker
from pairbus.client import BulkConnection
from pairbus.runtime import ThreadRuntime
from pairbus.runtime.files import LocalAppendFile
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.reader import BacklogReader
from pairbus.syphon._sync.receiving import QueueReceiver
from pairbus.syphon.journal import Journal, PageWriter
from pairbus.syphon.limits import Grant
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target

BATCH, STREAM = -1, 1


class Receiver(QueueReceiver):
    """Gives one message of each queue, and then fails."""

    def receive(self, queue, count, size, before):
        if not self.has_failed:
            super().receive(queue, 1, size, before)
            self.has_failed = True
            return [(None if self.deletes else bytes(16), b"\x00\x53\x75\xa0\x01x")]
        self.problem = "amqp:connection:forced: gone"
        return []


@pytest.fixture(scope="module")
def namespace():
    with broker.run("contoso") as running:
        for name in ("full", "empty"):
            running.create_queue(name)
        with BulkConnection(running.connection_string) as connection:
            assert connection.sender("full").send_batch([b"\x00\x53\x75\xa0\x01x"])[0].is_accepted
        yield running.connection_string


@pytest.fixture
def nobody():
    with socket.socket() as bound:  # it does not listen, and keeps the port from others
        bound.bind(("127.0.0.1", 0))
        yield (
            f"Endpoint=sb://127.0.0.1:{bound.getsockname()[1]};SharedAccessKeyName=a;"
            "SharedAccessKey=b;UseDevelopmentEmulator=true"
        )


def read(text, epoch, *queues, kind=QueueReceiver, state=None, must_read=True, **options):
    runtime = ThreadRuntime()
    link = NamespaceConnections(ConnectionPool(runtime), Target(text), "reader")
    reader = BacklogReader(
        runtime, kind(link, **options), BacklogQueues(runtime, link), namespace="dr", state=state
    )
    grants = [Grant(queue, 100, 1 << 20) for queue in queues]
    return list(reader.read(epoch, grants, must_read=must_read))


@pytest.mark.parametrize("epoch", [BATCH, STREAM])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_bounded_read_of_an_unreachable_namespace_fails(nobody, epoch, deletes):
    with pytest.raises(RuntimeError, match="servicebus: full: cannot be read: amqp:socket-error"):
        read(nobody, epoch, "full", deletes=deletes)


def test_a_stream_with_a_doorbell_takes_an_unreachable_queue_for_quiet(nobody):
    assert read(nobody, STREAM, "full", must_read=False) == []


def test_the_journal_page_of_a_read_that_is_broken_off_is_closed(namespace, tmp_path):
    class Page(PageWriter):
        is_closed = False

        def close(self):
            self.is_closed = True
            super().close()

    class Pages(Journal):
        def open_page(self, epoch, queue):
            super().open_page(epoch, queue).close()
            file = LocalAppendFile(tmp_path / "page", create=True)
            pages.append(Page(file))
            return pages[-1]

    pages = []
    runtime = ThreadRuntime()
    link = NamespaceConnections(ConnectionPool(runtime), Target(namespace), "reader")
    reader = BacklogReader(
        runtime, Receiver(link, is_ordered=True), BacklogQueues(runtime, link),
        namespace="dr", journal=Pages(tmp_path),
    )  # fmt: skip
    rows = reader.read(STREAM, [Grant("full", 100, 1 << 20)])
    assert next(rows).messages
    rows.close()
    assert [page.is_closed for page in pages] == [True]


def test_a_bounded_read_of_an_empty_queue_returns_nothing(namespace):
    assert read(namespace, BATCH, "empty") == []


def test_a_bounded_read_of_a_queue_that_does_not_exist_fails(namespace):
    with pytest.raises(RuntimeError, match="no-such-queue: cannot be read: amqp:not-found"):
        read(namespace, BATCH, "no-such-queue")


def test_a_batch_read_that_fails_reports_what_it_read_before(namespace, tmp_path):
    state = StateDirectory(tmp_path).create()
    with pytest.raises(RuntimeError, match="full: cannot be read: amqp:connection:forced: gone"):
        read(namespace, BATCH, "full", kind=Receiver, state=state)
    ((_, report),) = state.reports()
    assert report.read["full"].messages == 1


@pytest.mark.parametrize("deletes", [False, True])
def test_a_stream_keeps_messages_that_it_read_before_a_failure(namespace, tmp_path, deletes):
    """Those that were deleted would be lost, and the sink would not settle those that it sent."""
    state = StateDirectory(tmp_path).create()
    (batch,) = read(namespace, STREAM, "empty", kind=Receiver, state=state, deletes=deletes)
    assert len(batch.messages) == 1
    ((_, report),) = state.reports()
    assert report.read["empty"].has_more  # so that the next micro-batch tries again


def test_a_batch_read_returns_messages_that_it_deleted_before_a_failure(namespace):
    (batch,) = read(namespace, BATCH, "empty", kind=Receiver, deletes=True)
    assert len(batch.messages) == 1
