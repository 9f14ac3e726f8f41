"""Write the table of what an error means into the docs, from the table in the code."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path("docs/topics/error-table.inc")

ON_PRIMARY = {
    "OUTAGE": "starts the timer; redirected if the entity is failed over",
    "REOPEN": "the link is opened again once; the result decides",
    "BUSY": "raised after the client's retries",
    "FULL": "raised",
    "MISSING": "raised",
    "REFUSED": "raised",
}
ON_BACKLOG = {
    "OUTAGE": "retried on this queue or another one; leaves the rotation if another queue works",
    "REOPEN": "the link is opened again once; the result decides",
    "BUSY": "retried until the deadline",
    "FULL": "the queue leaves the rotation, and another is tried",
    "MISSING": "the queue leaves the rotation, and another is tried",
    "REFUSED": "raised; nothing leaves the rotation",
}
ON_PING = {
    "OUTAGE": "stays failed over",
    "REOPEN": "stays failed over",
    "BUSY": "stays failed over",
    "FULL": "stays failed over",
    "MISSING": "sends raise it until a ping succeeds",
    "REFUSED": "stays failed over",
}


def outputs() -> dict[Path, str]:
    """The page fragment with both tables."""
    sys.path.insert(0, str(ROOT / "src"))
    from pairbus.classify import TABLE, Verdict

    lines = [
        "<!-- written from src/pairbus/classify.py by tools/gen_error_table.py -->",
        "",
        "| The SDK raises | Verdict | Why |",
        "|---|---|---|",
    ]
    lines += [f"| {row.what} | `{row.verdict.name}` | {row.reason} |" for row in TABLE]
    lines += [
        "",
        "| Verdict | On the primary | On a backlog queue | On a ping |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{v.name}` | {ON_PRIMARY[v.name]} | {ON_BACKLOG[v.name]} | {ON_PING[v.name]} |"
        for v in Verdict
    ]
    return {TARGET: "\n".join(lines) + "\n"}
