"""The sources of a snapshot: status files, ledger, secondary, embedded brokers.

Each source is read by itself: it returns its data, or a problem in one line.
"""

import contextlib
import datetime as dt
import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairbus.ledger.store import LedgerError, Store
from pairbus.monitoring.endpoints import Endpoint
from pairbus.monitoring.formatting import one_line
from pairbus.monitoring.records import BrokerHealth, QueueDepth
from pairbus.names import sort_backlog_queues
from pairbus.runtime.processes import machine_id, started_at
from pairbus.status import PairStatus
from pairbus.syphon.object_files import is_url
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import SyphonStatus

Status = PairStatus | SyphonStatus
ENDED = "its process does not exist any more"
STATUSES: dict[str, Callable[[dict[str, Any]], Status]] = {
    "client": PairStatus.from_json,
    "syphon": SyphonStatus.from_json,
}


def read_statuses(ledger: str) -> list[Status]:
    """Return the status files that clients and syphons keep in the ledger, without broken ones.

    A syphon of this host that was killed is `silent`.

    Raises:
        LedgerError: nothing has reported, and the location is not a ledger.
    """
    store = Store(ledger)
    found: list[Status] = []
    names = store.list("status", ".json")
    if not names:  # else it is a ledger: clients report before their first flush marks it as one
        store.require_ledger()
    for name in names:
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            data = json.loads(store.read(name) or b"")
            if isinstance(data, dict) and data.get("kind") in STATUSES:
                found.append(_without_killed(STATUSES[data["kind"]](data)))
    return found


def _without_killed(status: Status) -> Status:
    if not isinstance(status, SyphonStatus) or status.state == "stopped" or not status.machine:
        return status
    return (
        replace(status, state="silent", stalled=ENDED)
        if process_exists(status) is False
        else status
    )


def process_exists(status: SyphonStatus) -> bool | None:
    """Whether the process of a syphon exists; None if it ran elsewhere, or before a reboot."""
    if status.host != socket.gethostname() or status.machine not in ("", machine_id()):
        return None
    started = started_at(status.pid)
    if started and status.process_started:
        return started == status.process_started  # else a newer process has the same id
    return started is not None


class BacklogSource:
    """Depth, dead letters and oldest age of the backlog queues, as the secondary reports them.

    A read makes one administration call for all queues, and peeks each queue that holds messages,
    through receivers that stay open.
    """

    def __init__(self, secondary: Endpoint, primary_namespace: str) -> None:
        self._endpoint = secondary
        self._primary_namespace = primary_namespace
        self._admin: Any = None
        self._client: Any = None
        self._receivers: dict[str, Any] = {}

    def read(self) -> list[QueueDepth]:
        """Return the backlog queues, by number. Raises what the SDK raises."""
        if self._admin is None:
            self._admin = self._endpoint.admin(retry_total=0, connection_timeout=5)
        queues = self._admin.list_queues_runtime_properties()
        return [
            QueueDepth(
                path=queue.name,
                active=queue.active_message_count or 0,
                dead_letters=queue.dead_letter_message_count or 0,
                size=queue.size_in_bytes or 0,
                oldest=self._oldest(queue.name) if queue.active_message_count else None,
            )
            for _, queue in sort_backlog_queues(self._primary_namespace, queues)
        ]

    def _oldest(self, path: str) -> dt.datetime | None:
        if self._client is None:
            self._client = self._endpoint.client(retry_total=0)
        try:
            if path not in self._receivers:
                self._receivers[path] = self._client.get_queue_receiver(path)
            first = self._receivers[path].peek_messages(max_message_count=1)
        except Exception:  # noqa: BLE001 - the age is an extra; the depth is known without it
            with contextlib.suppress(Exception):
                self._receivers.pop(path).close()
            return None
        # None is an unknown age; a queue that was emptied after the count has an age of zero.
        return first[0].enqueued_time_utc if first else dt.datetime.now(dt.UTC)

    def close(self) -> None:
        """Close the clients that the reads opened."""
        for handler in (*self._receivers.values(), self._client, self._admin):
            with contextlib.suppress(Exception):
                if handler is not None:
                    handler.close()
        self._receivers.clear()
        self._client = self._admin = None


# Not through a proxy: the connections of AMQP do not use one either.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def broker_health(role: str, endpoint: Endpoint, namespace: str | None) -> BrokerHealth | None:
    """Return the health of an embedded broker; None for any other namespace.

    Args:
        role: `primary` or `secondary`.
        endpoint: the namespace.
        namespace: its name, for a broker that does not answer.
    """
    if not endpoint.is_emulator:
        return None
    is_up, detail = False, ""
    try:
        with _DIRECT.open(f"http://{endpoint.host}/$control/health", timeout=2.0) as answer:
            health = json.loads(answer.read(65536))
        if not isinstance(health, dict):
            return None  # another server
        namespace = health.get("namespace", namespace)
        is_up = True
    except urllib.error.HTTPError as exc:
        is_up = exc.code == 401  # only on a loopback address it answers without a token
        detail = "" if is_up else one_line(exc)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "reason", exc)
        detail = getattr(reason, "strerror", None) or one_line(exc)
    except http.client.HTTPException:  # another emulator, which speaks only AMQP on this port
        return None
    return BrokerHealth(
        role=role, namespace=namespace, host=endpoint.host, is_up=is_up, detail=detail
    )


def control_syphon(status: SyphonStatus, *, paused: bool) -> None:
    """Pause or resume a syphon through its controls, which survive its restarts."""
    place = status.checkpoint
    if not is_url(place) and not (Path(place).is_absolute() and Path(place).is_dir()):
        raise FileNotFoundError(f"the checkpoint of syphon {status.id} is not on this host")
    StateDirectory(place).change_controls(paused=paused)


def guarded(read: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return the data of a source and None, or None and its problem in one masked line."""
    try:
        return read(), None
    except Exception as exc:  # noqa: BLE001 - one source that fails must not hide the others
        text = one_line(exc)
        return None, text if isinstance(exc, LedgerError) else f"{type(exc).__name__}: {text}"
