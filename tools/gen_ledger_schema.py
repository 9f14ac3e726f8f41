"""Write the reference of the ledger's tables from `pairbus.ledger.schema`."""

from pathlib import Path

from pairbus.ledger.schema import TABLES, VERSION, Column
from pairbus.pricing import STAGES

ABOUT = {
    "operations": "Calls to the service, summed up by the minute: a row for each minute, client, "
    "namespace, entity, stage, operation and size step.",
    "messages": "A row for each thing that happened to a message that took the backlog. Never a "
    "body, never a secret.",
}

HEAD = f"""# Ledger schema

<!-- generated from src/pairbus/ledger/schema.py -->

A ledger is a directory or a URL. This is version {VERSION} of its format; readers refuse any other.

| path | holds |
|---|---|
| `ledger.json` | `{{"format": "pairbus ledger", "version": {VERSION}}}` |
| `operations/*.parquet` | the table *operations* |
| `messages/*.parquet` | the table *messages* |
| `status/*.json` | what each paired client and syphon says of itself now; no part of the books |

A file appears whole or not at all: it is written under a name that begins with an underscore and
renamed. No file is ever changed. Rows are numbered by their writer, without gaps, in each table; a
row that comes twice has the same (writer, sequence) and counts once. Each file's footer has the key
`pairbus.ranges`: for each writer, the closed ranges of numbers in the file, as JSON. Times are
microseconds in UTC.

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
