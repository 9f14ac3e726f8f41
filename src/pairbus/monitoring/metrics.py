"""The snapshot as Prometheus reads it (text format 0.0.4)."""

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]
Sample = tuple[dict[str, str], float]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(snapshot: Row) -> str:
    """All metrics, each with its help and type."""
    lines = []
    for name, kind, text, samples in families(snapshot):
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{labels(label)} {value:g}" for label, value in samples]
    return "\n".join(lines) + "\n"


def families(snapshot: Row) -> Iterator[tuple[str, str, str, list[Sample]]]:
    """Each metric: name, type, help, samples."""
    entities = snapshot["entities"]
    backlog = snapshot["backlog"]
    syphons = snapshot["syphons"]
    phases = ("healthy", "suspect", "failed_over")
    yield (
        "pairbus_entity_phase",
        "gauge",
        "1 for the phase that the entity is in.",
        [
            ({"entity": e["entity"], "phase": phase}, float(e["phase"] == phase))
            for e in entities
            for phase in phases
        ],
    )
    yield (
        "pairbus_entity_failed_over_seconds",
        "gauge",
        "Since when the entity is failing or failed over.",
        [({"entity": e["entity"]}, e["seconds"] or 0.0) for e in entities],
    )
    for name, text in (
        ("sent_primary", "Messages sent to the primary."),
        ("sent_backlog", "Messages sent to the backlog."),
        ("pings", "Pings sent."),
        ("failures", "Sends that met an outage."),
    ):
        yield (
            f"pairbus_entity_{name}_total",
            "counter",
            text,
            [({"entity": e["entity"]}, float(e["counts"].get(name, 0))) for e in entities],
        )
    for name, text in (
        ("active", "Messages in the backlog queue."),
        ("dead_letters", "Dead letters of the backlog queue."),
        ("oldest_age", "Age of the oldest message in the backlog queue, in seconds."),
    ):
        yield (
            f"pairbus_backlog_{name}" + ("_seconds" if name == "oldest_age" else ""),
            "gauge",
            text,
            [
                ({"queue": q["path"] or ""}, float(q[name] or 0))
                for q in backlog["queues"]
                if q[name] is not None or name != "active"
            ],
        )
    yield (
        "pairbus_syphon_state",
        "gauge",
        "1 for the state that the syphon is in.",
        [
            ({"syphon": str(s["id"]), "state": state}, float(s["state"] == state))
            for s in syphons
            for state in ("starting", "running", "idle", "paused", "stalled", "stopped", "silent")
        ],
    )
    for name, kind, text in (
        ("forwarded", "counter", "Messages that the syphon brought home."),
        ("remaining", "gauge", "Messages that the syphon still sees in the backlog."),
        ("rate", "gauge", "Messages a second that the syphon brings home."),
    ):
        yield (
            f"pairbus_syphon_{name}" + ("_total" if kind == "counter" else ""),
            kind,
            text,
            [({"syphon": str(s["id"])}, float(s[name] or 0)) for s in syphons],
        )
    yield (
        "pairbus_broker_up",
        "gauge",
        "Whether an embedded broker answers.",
        [({"role": b["role"], "host": b["host"]}, float(b["is_up"])) for b in snapshot["brokers"]],
    )
    money = snapshot["money"] or {}
    yield (
        "pairbus_billable_operations_total",
        "counter",
        "Billable operations in the ledger, by stage.",
        [({"stage": s["stage"]}, float(s["operations"])) for s in money.get("stages", ())],
    )
    yield (
        "pairbus_cost_total",
        "counter",
        "What the operations in the ledger cost, by stage.",
        [
            ({"stage": s["stage"], "currency": money["currency"]}, float(s["amount"]))
            for s in money.get("stages", ())
            if s.get("amount") is not None
        ],
    )


def labels(values: dict[str, str]) -> str:
    """Labels as the format wants them."""
    if not values:
        return ""
    inner = ",".join(f'{name}="{escape(value)}"' for name, value in values.items())
    return "{" + inner + "}"


def escape(value: str) -> str:
    """A label's value, escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
