"""Draw the packages of pairbus and their imports into the docs, from the code's import graph.

An arrow means "imports". Arrows that follow from others are left out, so that the picture shows the
layers: if A imports B and B imports C, there is no arrow from A to C.
"""

import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path("docs/architecture-imports.inc")
PACKAGES = [
    "cli", "demo", "drill", "dashboard", "monitoring", "reports", "spark", "syphon", "pairing",
    "ledger", "client", "envelope", "amqp", "broker", "testing",
]  # fmt: skip
# Modules at the top level that every package may use.
VOCABULARY = "vocabulary"


def package_of(module: str) -> str | None:
    """The box that a module is drawn in; None for those that only hand on public names."""
    parts = module.split(".")
    if len(parts) < 2 or parts[1] in ("aio", "__main__", "_version"):
        return None
    if parts[1] in PACKAGES:
        return parts[1]
    # A module with a leading underscore is plumbing of the top level, not vocabulary.
    return None if parts[1].startswith("_") else VOCABULARY


def edges() -> set[tuple[str, str]]:
    """Which package imports which, imports for type checking alone left out."""
    sys.path.insert(0, str(ROOT / "src"))
    graph = grimp.build_graph("pairbus", exclude_type_checking_imports=True, cache_dir=None)
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = package_of(module), package_of(imported)
            if pair[0] and pair[1] and pair[0] != pair[1]:
                found.add((pair[0], pair[1]))
    return found


def reduced(arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows without those that follow from two or more others."""

    def reaches(start: str, end: str, seen: set[str]) -> bool:
        return any(
            following == end
            or (following not in seen and reaches(following, end, seen | {following}))
            for source, following in sorted(arrows)
            if source == start
        )

    return sorted(
        (source, target)
        for source, target in arrows
        if not any(
            between != target and reaches(between, target, {between})
            for first, between in arrows
            if first == source
        )
    )


def outputs() -> dict[Path, str]:
    """The page fragment with the diagram."""
    lines = ["flowchart TD"]
    lines += [f"    {source} --> {target}" for source, target in reduced(edges())]
    drawn = "\n".join(lines)
    note = "<!-- drawn from the import graph by tools/gen_architecture.py -->"
    return {TARGET: f"{note}\n\n```mermaid\n{drawn}\n```\n"}
