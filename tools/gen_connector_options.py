"""Generate docs/reference/connector.md from the connector's own tables."""

# ruff: noqa: E501  (tables in Markdown have long lines)

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from pairbus.spark.options import OPTIONS  # noqa: E402
from pairbus.syphon.columns import ALIASES, COLUMNS  # noqa: E402
from pairbus.syphon.refusals import REASONS  # noqa: E402 - src comes first
from pairbus.syphon.verdicts import VERDICTS  # noqa: E402

INTRO = """\
# Spark connector

`format("servicebus")` reads and writes queues, topics and subscriptions of Azure Service Bus from
PySpark. Spark finds the connector if pairbus is installed; otherwise call
`spark.dataSource.register(pairbus.spark.source.ServiceBusSource)`. It sends and
receives messages with the bulk client of pairbus, not with the SDK.

```python
messages = (
    spark.read.format("servicebus")
    .option("connectionString", "env:CONTOSO")  # a reference, not the secret itself
    .option("queue", "orders")
    .load()
)
messages.groupBy("subject").count().show()
```

| | read | write |
|---|---|---|
| batch | the present messages: peek, lock, or receive and delete | send the rows |
| stream | `peek`: replayable, by sequence number; `peekLock`: the sink settles; `receiveAndDelete` | send the rows, and settle locked messages |

Secrets: `env:NAME` and `file:PATH` are resolved in the process that connects: the driver's helper
process and every worker. A connection string that is given directly becomes part of Spark's
serialised plan. Spark redacts it where options are shown, because it contains `AccessKey`
(`spark.redaction.regex`). A shared access signature is not redacted, and is therefore refused in
this form.

This page is generated from the code.
"""


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _options(use: str) -> str:
    rows = [
        [f"`{o.name}`", o.type, f"`{o.default}`" if o.default is not None else "", o.meaning]
        for o in OPTIONS
        if o.use == use
    ]
    return _table(["option", "type", "default", "meaning"], rows)


def outputs() -> dict[Path, str]:
    """The page."""
    columns = [[f"`{c.name}`", f"`{c.type}`", c.meaning] for c in COLUMNS]
    aliases = [[f"`{c.name}`", f"`{c.type}`", c.meaning] for c in ALIASES]
    text = "\n".join(
        [
            INTRO,
            (
                "## Options\n\nNames are case-insensitive. A missing, unknown or wrong option is named"
                " in the error.\n\n### For both\n"
            ),
            _options("both"),
            "### To read\n",
            _options("read"),
            "### To write\n",
            _options("write"),
            (
                "## Columns\n\nThe reader returns these columns, or those that the option `columns`"
                " selects. The writer sends the column `message` unchanged, or builds a message from"
                " `body` and the columns of properties. If neither `queue` nor `topic` is given, the"
                " column `destination` names the entity that each row is sent to.\n"
            ),
            _table(["column", "type", "holds"], columns),
            "With `aliases`, also:\n",
            _table(["column", "type", "holds"], aliases),
            "## Verdicts\n\nWith `settle`, the column `verdict` says what happens with a row.\n",
            _table(["verdict", "what the sink does"], [[f"`{k}`", v] for k, v in VERDICTS.items()]),
            (
                "## Reasons\n\nThe reasons of messages that the sink dead-letters. The description has the"
                " text of the destination's error. A transform can set reasons of its own.\n"
            ),
            _table(["reason", "meaning"], [[f"`{k}`", v] for k, v in REASONS.items()]),
        ]
    )
    return {Path("docs/reference/connector.md"): text.rstrip() + "\n"}
