"""Status by progress: what the keeper wrote, what the queues say, and the files that tell it."""

import contextlib
import os
import re
import socket
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pairbus.exceptions import SyphonError
from pairbus.names import format_connection_string, parse_connection_string
from pairbus.spark.setup import Setup
from pairbus.syphon.control_files import StateDir
from pairbus.syphon.progress import Progress, Remaining, state_of

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from pairbus.ledger.writer import LedgerWriter

__all__ = ["Monitor"]

NO_NAME = "there is no such namespace (name not found)"
ASK_EVERY = 5.0
WRITE_EVERY = 1.0
WRITE_IDLE = 30.0


class Monitor:
    """Looks at a syphon from the outside and says how it stands."""

    def __init__(self, setup: Setup, state: StateDir) -> None:
        self._setup = setup
        self._state = state
        self._progress = Progress()
        self._since = time.time()
        self._begun = False
        self._queues: list[dict[str, Any]] = []
        self._remaining: int | None = None  # when it was last counted
        self._left = Remaining()
        self._asked_at = 0.0
        self._written_at = 0.0
        self._written: dict[str, Any] = {}
        self._admin: ServiceBusAdministrationClient | None = None
        self._ledger: LedgerWriter | None = None

    # -- the queues

    def check(self) -> None:
        """Find out, before anything starts, whether both namespaces let us in.

        A primary that cannot be reached is no error: that is what backlogs are for.

        Raises:
            SyphonError: in one line, why not.
        """
        self._check_secondary()
        self._check_primary()

    def _check_primary(self) -> None:
        from pairbus.client.errors import AuthenticationError
        from pairbus.syphon.wire import check

        host = self._setup.primary_host
        problem = check(self._setup.primary, "$management")
        if isinstance(problem, AuthenticationError) and problem.status_code in (401, 403):
            raise SyphonError(f"primary {host}: the key or token is refused")
        if problem is not None and isinstance(problem.__cause__, socket.gaierror):
            raise SyphonError(f"primary {host}: {NO_NAME}")

    def _check_secondary(self) -> None:
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
        )

        host = self._setup.secondary_host
        try:
            self._ask()
        except ClientAuthenticationError:
            raise SyphonError(f"secondary {host}: the key or token is refused") from None
        except HttpResponseError as exc:
            if exc.status_code in (401, 403):
                # Without the Manage claim nobody can count; the syphon itself needs no counts.
                return
            raise SyphonError(f"secondary {host}: {exc.reason or exc.message}") from None
        except AzureError as exc:
            if "Failed to resolve" in str(exc) or "getaddrinfo" in str(exc):
                raise SyphonError(f"secondary {host}: {NO_NAME}") from None
            raise SyphonError(f"secondary {host}: cannot be reached ({_short(exc)})") from None
        if not self._queues:
            raise SyphonError(
                f"secondary {host}: there are no backlog queues {self._setup.queues[0]} …; "
                "pair the namespaces first (`pairbus backlog create`)"
            )

    def _client(self) -> "ServiceBusAdministrationClient":
        if self._admin is None:
            from azure.servicebus.management import ServiceBusAdministrationClient

            target = self._setup.secondary
            options: dict[str, Any] = {"retry_total": 1}
            if target.ca_file:
                options["connection_verify"] = target.ca_file
            text = target.connection_string()
            if text is None:
                credential = target.token_credential()
                text = _as_connection_string(target.host, credential)
            if text is None:
                self._admin = ServiceBusAdministrationClient(target.host, credential, **options)
            elif parse_connection_string(text).is_emulator:
                from pairbus.administration import admin_client

                self._admin = admin_client(text, **options)
            else:
                self._admin = ServiceBusAdministrationClient.from_connection_string(text, **options)
        return self._admin

    def _ask(self, *, moving: bool = False) -> None:
        """Count the backlog queues."""
        from azure.core.exceptions import ResourceNotFoundError

        client = self._client()
        queues: list[dict[str, Any]] = []
        for path in self._setup.queues:
            self._count(path)
            try:
                found = client.get_queue_runtime_properties(path)
            except ResourceNotFoundError:
                continue
            queues.append(
                {
                    "path": path,
                    "active": found.active_message_count or 0,
                    "oldest": None,
                    "dead_letters": found.dead_letter_message_count or 0,
                }
            )
        self._queues = queues
        self._remaining = sum(queue["active"] for queue in queues)
        settled = _settled(self._state.read("progress.json"))
        self._left = self._left.counted(self._remaining, settled, moving=moving)
        self._asked_at = time.time()

    def _count(self, path: str) -> None:
        """Note a management call: looking is charged too."""
        if self._setup.ledger:
            host = self._setup.secondary_host
            self._writer().count(host, path, "management", "runtime", messages=0)

    def _writer(self) -> "LedgerWriter":
        from pairbus.ledger.writer import LedgerWriter

        if self._ledger is None:
            self._ledger = LedgerWriter(self._setup.ledger or "", client_id=self._setup.client_id)
        return self._ledger

    def is_empty(self) -> bool:
        """Whether the queues hold no active message now, locked ones included."""
        try:
            self._ask()
        except Exception:  # noqa: BLE001 - not known is not empty
            return False
        return self._remaining == 0

    # -- status

    def status(self, *, active: bool, stopped: bool) -> dict[str, Any]:
        """How the syphon stands."""
        now = time.time()
        told = self._state.read("progress.json")
        control = self._state.control()
        progress = self._progress
        if told.get("begun") and not self._begun:
            self._begun, self._since = True, now  # what Spark's start took is no standstill
        state = state_of(
            now,
            stopped=stopped,
            paused=control.paused,
            problem=told.get("problem"),
            remaining=self._remaining,
            waiting=told.get("waiting", 0),
            doubtful=len(told.get("doubtful", [])),
            active=active,
            since=self._since,
            last_progress=progress.last_progress,
            begun=self._begun,
        )
        setup, remaining = self._setup, self._left.left(_settled(told))
        return {
            "kind": "syphon",
            "version": 1,
            "id": setup.client_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "primary": setup.primary_name,
            "secondary": setup.secondary_host,
            "updated_at": _iso(now),
            "state": state.word,
            "stalled": state.stalled,
            "forwarded": told.get("forwarded", 0),
            "bytes": told.get("bytes", 0),
            "remaining": remaining,
            "in_flight": (told.get("in_flight", 0) if active else 0) + told.get("waiting", 0),
            "waiting": told.get("waiting", 0),
            "waiting_for": told.get("waiting_for", {}),
            "doubtful": told.get("doubtful", []),
            "dead_lettered": told.get("dead_lettered", {}),
            "oldest_age": max(0.0, now - told["oldest"] / 1000) if told.get("oldest") else None,
            "rate": round(progress.rate, 1),
            "eta": progress.eta(remaining),
            "last_progress": _iso(progress.last_progress) if progress.last_progress else None,
            "limits": {
                "max_messages_per_second": control.max_messages_per_second,
                "max_bytes_per_second": control.max_bytes_per_second,
            },
            "queues": self._queues,
            "checkpoint": str(setup.checkpoint),
        }

    def tick(self, *, active: bool, stopped: bool = False) -> None:
        """Look again, and write the status down when it changed or is old."""
        now = time.time()
        told = self._state.read("progress.json")
        if now - (self._progress.sampled_at or 0) >= 1:
            self._progress = self._progress.sample(
                now,
                forwarded=told.get("forwarded", 0),
                size=told.get("bytes", 0),
                dead_lettered=told.get("dead_lettered", {}),
            )
        busy = active or bool(self._remaining) or bool(told.get("waiting"))
        if busy and now - self._asked_at >= ASK_EVERY:
            with contextlib.suppress(Exception):  # the status goes on without counts
                self._ask(moving=active)
        self._write(now, active=active, stopped=stopped)

    def _write(self, now: float, *, active: bool, stopped: bool) -> None:
        if now - self._written_at < WRITE_EVERY and not stopped:
            return
        status = self.status(active=active, stopped=stopped)
        same = {**status, "updated_at": None} == {**self._written, "updated_at": None}
        if same and now - self._written_at < WRITE_IDLE:
            return
        self._written, self._written_at = status, now
        with contextlib.suppress(OSError):
            self._state.write("status.json", status)
        if self._setup.ledger:
            self._write_to_ledger(status)

    def _write_to_ledger(self, status: dict[str, Any]) -> None:
        import json

        with contextlib.suppress(Exception):  # the ledger's state is told by the status itself
            self._writer().write_status(
                f"{self._setup.client_id}.json", json.dumps(status).encode()
            )

    def close(self) -> None:
        """Write the last status."""
        self.tick(active=False, stopped=True)
        if self._ledger is not None:
            self._ledger.close()
        if self._admin is not None:
            with contextlib.suppress(Exception):
                self._admin.close()


def _as_connection_string(host: str, credential: Any) -> str | None:
    """The SDK's administration takes keys and signatures in this form alone."""
    if hasattr(credential, "named_key"):
        name, key = credential.named_key
        return format_connection_string(host, key_name=name, key=key)
    if hasattr(credential, "signature"):
        return format_connection_string(host, signature=credential.signature)
    return None


def _settled(told: dict[str, Any]) -> int:
    """Messages that left the backlog, by what the keeper wrote."""
    return int(told.get("forwarded", 0) + sum(told.get("dead_lettered", {}).values()))


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _short(exc: BaseException) -> str:
    text = " ".join(str(exc).split())
    found = re.search(r"\[Errno -?\d+\] ([\w ]+)", text)
    return found[1] if found else text[:120]
