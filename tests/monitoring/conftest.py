"""A ledger with status files as clients and syphons write them."""

import datetime as dt
import json
from pathlib import Path

import pytest

QUEUES = [f"contoso/x-servicebus-transfer/{n}" for n in range(4)]


def ago(seconds: float) -> str:
    return (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)).isoformat()


class Scene:
    """A ledger folder whose owners say what a test wants them to."""

    def __init__(self, root: Path) -> None:
        self.ledger = root / "ledger"
        self.checkpoint = root / "checkpoint"
        (self.ledger / "status").mkdir(parents=True)
        (self.ledger / "ledger.json").write_text('{"format": "pairbus ledger", "version": 1}')
        self.checkpoint.mkdir()

    def write(self, name: str, data: dict) -> None:
        path = self.ledger / "status" / name
        temporary = path.with_name("_" + name)
        temporary.write_text(json.dumps(data))
        temporary.replace(path)

    def client(self, *entities: dict, client_id: str = "web-1", **changes) -> None:
        self.write(
            f"{client_id}.json",
            {
                "kind": "client",
                "version": 1,
                "client_id": client_id,
                "host": "node-7",
                "pid": 4711,
                "primary_namespace": "contoso",
                "secondary": "contoso-dr",
                "updated_at": ago(0),
                "state": "open",
                "ledger_problem": None,
                "entities": list(entities),
                "backlog_queues": [
                    {"path": path, "in_rotation": True, "reason": None, "until": None}
                    for path in QUEUES
                ],
                "events": [],
                **changes,
            },
        )

    def syphon(self, **changes) -> None:
        self.write(
            "syphon-s1.json",
            {
                "kind": "syphon",
                "version": 1,
                "id": "s1",
                "host": "node-9",
                "pid": 815,
                "primary": "contoso",
                "secondary": "contoso-dr",
                "updated_at": ago(0),
                "state": "running",
                "stalled": None,
                "forwarded": 1200,
                "remaining": 4300,
                "in_flight": 256,
                "dead_lettered": {},
                "oldest_age": 190.0,
                "rate": 310.5,
                "eta": 14.0,
                "last_progress": ago(1),
                "queues": [
                    {"path": path, "active": 1000 + n, "oldest": 190.0, "dead_letters": 0}
                    for n, path in enumerate(QUEUES)
                ],
                "checkpoint": str(self.checkpoint),
                **changes,
            },
        )


def entity(name: str, phase: str = "healthy", **changes) -> dict:
    failed = phase != "healthy"
    return {
        "entity": name,
        "phase": phase,
        "since": ago(200) if failed else None,
        "last_error": "ServiceBusConnectionError: connection refused" if failed else None,
        "backlog_queue": QUEUES[1] if phase == "failed_over" else None,
        "next_ping": ago(-117) if phase == "failed_over" else None,
        "forced": None,
        "counts": {"sent_primary": 5120, "sent_backlog": 830 if failed else 0, "pings": 3,
                   "failures": 2 if failed else 0},
        **changes,
    }  # fmt: skip


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)
