"""Write the reference of the ledger's tables from `pairbus.ledger.schema`."""

from pathlib import Path

from pairbus.ledger.schema import TABLES, VERSION, Column
from pairbus.pricing import STAGES

ABOUT = {
    "operations": "Calls to the service, aggregated by minute: one row per minute, client, "
    "namespace, entity, stage, operation and size step.",
    "messages": "One row for each event of a message that went through the backlog. Rows hold no "
    "bodies and no secrets.",
}

HEAD = f"""# Ledger schema

<!-- generated from src/pairbus/ledger/schema.py -->

A ledger is a directory or a URL. This is version {VERSION} of its format; readers refuse any other.

| path | holds |
|---|---|
| `ledger.json` | `{{"format": "pairbus ledger", "version": {VERSION}}}` |
| `operations/*.parquet` | the table *operations* |
| `messages/*.parquet` | the table *messages* |
| `status/*.json` | the present status of each paired client and syphon; not read by reports |

A file is written under a name that begins with an underscore and then renamed, so that readers see
complete files only. Files are never changed. Each writer numbers its rows in each table without
gaps. A repeated row has the same (writer, sequence) and counts once. The footer of each file has
the key `pairbus.ranges`: for each writer, the closed ranges of row numbers in the file, as JSON.
Times are microseconds in UTC.

Stages: {", ".join(f"`{stage}`" for stage in STAGES)}.
"""


def table(name: str, columns: tuple[Column, ...]) -> str:
    lines = [
        f"## {name}",
        "",
        ABOUT[name],
        "",
        "| column | type | null | meaning |",
        "|---|---|---|---|",
    ]
    for column in columns:
        null = "yes" if column.nullable else ""
        lines.append(f"| `{column.name}` | {column.type} | {null} | {column.meaning} |")
    return "\n".join(lines) + "\n"


def outputs() -> dict[Path, str]:
    text = HEAD + "".join("\n" + table(name, columns) for name, columns in TABLES.items())
    return {Path("docs/reference/ledger-schema.md"): text}
