"""Start the syphon: backlog → restore → deliver, as a Structured Streaming query.

The command line, `enable_syphon` and the demo all use `start_syphon`.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pairbus.client.errors import AuthenticationError, ClientError
from pairbus.exceptions import SyphonError
from pairbus.names import namespace_or_host
from pairbus.options import SyphonOptions
from pairbus.runtime import ThreadRuntime
from pairbus.runtime.processes import machine_id, started_at
from pairbus.spark.executor import connections
from pairbus.spark.handle import TAKEN_OVER, SyphonHandle
from pairbus.spark.ledger import SyphonLedger
from pairbus.spark.query import backlog, open_session, prepare_session
from pairbus.spark.query_options import apply_transform, load_transform
from pairbus.spark.restore import restore
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import check_access
from pairbus.syphon._sync.primary_probe import PrimaryProbe
from pairbus.syphon._sync.receiving import Browser
from pairbus.syphon._sync.survey import record_change
from pairbus.syphon.lease import Lease
from pairbus.syphon.object_journal import open_journal
from pairbus.syphon.object_lease import ObjectLease, open_lease
from pairbus.syphon.queue_counter import KEY_REFUSED, NO_NAMESPACE, QueueCounter
from pairbus.syphon.records import HeldRecord, OperationCount
from pairbus.syphon.retarget import TargetRecord
from pairbus.syphon.setup import Bounds, Setup
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_monitor import StatusMonitor
from pairbus.syphon.status_records import QueueCounts, SyphonStatus
from pairbus.syphon.target import CredentialFailedError, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Bounds", "SyphonHandle", "check_namespaces", "record_target", "start_syphon"]


def start_syphon(
    options: SyphonOptions,
    *,
    spark: "SparkSession | None" = None,
    bounds: Bounds | None = None,
) -> SyphonHandle:
    """Forward the backlog until the syphon is stopped or its bounds are reached.

    Args:
        options: the two namespaces, checkpoint and ledger, limits.
        spark: the session to run on; one of its own, on `options.master`, if left out.
        bounds: when it ends by itself; never, if left out.

    Raises:
        SyphonError: the problem, in one line.
        SparkUnavailableError: there is no Spark or no Java.
    """
    setup = Setup.of(options)
    transform = load_transform(setup)
    runtime = ThreadRuntime()
    with contextlib.ExitStack() as failure:
        # Closed by the handle, or here if there is none.
        resources = failure.enter_context(contextlib.ExitStack())
        state, lease = _open_state(setup, resources)
        ledger = SyphonLedger(setup.ledger, setup.client_id)
        counter = QueueCounter(
            setup,
            lambda path: ledger.add(
                OperationCount(setup.secondary_host, "management", path, "runtime", billable=1)
            ),
        )
        resources.callback(counter.close)
        resources.callback(ledger.close)
        identity = SyphonStatus(
            id=setup.client_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            primary=setup.primary_name,
            secondary=setup.secondary_host,
            checkpoint=setup.state_shown,
            machine=machine_id(),
            process_started=started_at(os.getpid()) or "",
        )
        monitor = StatusMonitor(
            runtime, state, identity, counter.count, ledger.write_status, ledger.state
        )
        # A wrong key or a missing namespace is reported before Spark is started.
        counts = check_namespaces(setup, counter)
        if counts is not None:
            queues = tuple(queue.path for queue in counts)
            ready = tuple(queue.path for queue in counts if queue.active)
            setup = replace(setup, queues=queues, ready=ready)
            with contextlib.suppress(OSError):  # the state cannot be read now: counted again later
                monitor.counted(counts)
        with _state_errors(setup):
            record_target(setup, state)
        if spark is None:
            spark = open_session(options.master)
            resources.callback(spark.stop)
        session = prepare_session(spark, is_paced=options.credits_per_second is not None)
        rows = backlog(session, setup, bounds or Bounds())
        messages = restore(rows, ttl_policy=options.ttl_policy, keep_original=transform is not None)
        if transform is not None:
            messages = apply_transform(transform, messages)
        with _state_errors(setup):
            if not lease.renew():  # on a cluster, Spark may take longer to start than a lease lasts
                raise SyphonError(TAKEN_OVER)
        probe = PrimaryProbe(runtime, state, partial(is_reachable, setup.target))
        resources.callback(probe.close)
        probe.start()

        handle = SyphonHandle(
            setup,
            state,
            monitor,
            messages,
            bounds or Bounds(),
            resources.close,
            lease.renew,
            partial(peeking, setup, ledger),
        )
        failure.pop_all()
    return handle


def is_reachable(target: Target) -> bool:
    """Whether a namespace lets the credential in.

    Raises:
        CredentialFailedError: the credential failed.
    """
    problem = check_access(ThreadRuntime(), target, "$management", 2.0)
    if isinstance(problem, CredentialFailedError):
        raise problem
    return problem is None


@contextlib.contextmanager
def peeking(setup: Setup, ledger: SyphonLedger) -> Iterator[Callable[[], bool]]:
    """Yield a function that peeks whether all backlog queues are empty, on one connection."""
    links = connections(setup.secondary, "emptiness")
    queues = BacklogQueues(ThreadRuntime(), links)

    def is_empty() -> bool:
        for path in setup.queues:
            ledger.add(OperationCount(setup.secondary_host, "management", path, "peek", billable=1))
            if not queues.is_empty(path):  # None is unknown
                return False
        return True

    try:
        yield is_empty
    finally:
        links.drop()


def _open_state(
    setup: Setup, resources: contextlib.ExitStack
) -> tuple[StateDirectory, Lease | ObjectLease]:
    """Open the state directory for a new run, and take its lease."""
    runtime = ThreadRuntime()
    state = StateDirectory(setup.state, runtime)
    lease = open_lease(setup.state, runtime, host=socket.gethostname(), pid=os.getpid())
    with _state_errors(setup):
        state.create()
        lease.acquire()
        resources.callback(lease.release)
        state.begin_run()
        for name in ("max_messages_per_second", "max_bytes_per_second"):
            if (limit := getattr(setup.options, name)) is not None:
                state.change_controls(**{name: limit})
    return state, lease


@contextlib.contextmanager
def _state_errors(setup: Setup) -> Iterator[None]:
    """Report a state directory that fails as a `SyphonError`."""
    try:
        yield
    except OSError as exc:
        raise SyphonError(f"state directory {setup.state_shown}: {exc}") from exc


def check_namespaces(setup: Setup, counter: QueueCounter) -> tuple[QueueCounts, ...] | None:
    """Check that both namespaces accept the credentials; return the counts of the backlog queues.

    A primary that cannot be reached is no error: the syphon waits for it.

    Raises:
        SyphonError: why one does not, in one line.
    """
    counts = counter.check()
    host = f"{'target' if setup.is_retargeted else 'primary'} {setup.target_host}"
    problem = check_access(ThreadRuntime(), setup.target, "$management")
    if isinstance(problem, AuthenticationError) and problem.status_code in (401, 403):
        raise SyphonError(f"{host}: {KEY_REFUSED}")
    if isinstance(problem, CredentialFailedError):
        raise SyphonError(f"{host}: {problem.description}") from problem
    if problem is not None and isinstance(problem.__cause__, socket.gaierror):
        raise SyphonError(f"{host}: {NO_NAMESPACE}")
    return counts


def record_target(setup: Setup, state: StateDirectory) -> None:
    """Record the target; if it changed, record which messages may have been handed out.

    Raises:
        SyphonError: it changed, and the backlog queues cannot be browsed.
    """
    record, host = state.target(), setup.target_host.lower()
    if record.host == host:
        return
    if not record.host and not setup.is_retargeted:
        state.write_target(TargetRecord(host))
        return
    runtime = ThreadRuntime()
    browser = Browser(connections(setup.secondary, "survey"))
    held = state.held()
    try:
        change = record_change(
            runtime,
            browser,
            open_journal(state.location, runtime),
            setup.queues,
            host=host,
            former=namespace_or_host(record.host) if record.host else setup.primary_name,
            is_known=state.is_known,
            held=held.held,
        )
    except ClientError as exc:
        raise SyphonError(f"secondary {setup.secondary_host}: {exc.condition}") from None
    # The refusals of the former target do not apply to this one.
    state.write_held(HeldRecord(held.held))
    state.write_target(change)
