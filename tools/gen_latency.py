"""Write the table of latencies through outages into the docs, from the output of the benchmark.

`python -m benchmarks pairing_latency > docs/topics/latency-figures.txt` measures anew.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs/topics/latency-figures.txt"
TARGET = Path("docs/topics/latency-table.inc")
SIDES = (("paired", "pairbus"), ("raw", "bare SDK"))
COLUMNS = ("p50", "p99", "max", "failed")


def outputs() -> dict[Path, str]:
    """The page fragment with the table."""
    figures = {}
    for line in FIGURES.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("pairing_latency."):
            figures[tuple(name.split(".")[1:])] = value
    cases = dict.fromkeys(name[:3] for name in figures)  # in the order of the file
    lines = [
        "<!-- written from latency-figures.txt by tools/gen_latency.py -->",
        "",
        "| Primary | Client | Senders | Sends by | p50 | p99 | Longest | Raised an error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        for side, label in SIDES:
            values = [figures.get((*case, side, column), "–") for column in COLUMNS]
            lines.append(f"| {' | '.join((*case, label, *values))} |")
    return {TARGET: "\n".join(lines) + "\n"}
