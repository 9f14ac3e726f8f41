"""Planted bugs: apply a patch to a copy of the source, and run seeds until the judge finds it.

    python -m simulation.planted                  how many seeds each bug needs, as a table
    python -m simulation.planted pings-never-stop one of them
    python -m simulation.planted --write          and write the table into the documentation

A bug is a file `simulation/bugs/<name>.patch`: a line that explains it, an empty line, and a diff.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATCHES = Path(__file__).parent / "bugs"
TABLE = ROOT / "docs" / "topics" / "planted-bugs.inc"


def names() -> list[str]:
    """The bugs that there are."""
    return sorted(path.stem for path in PATCHES.glob("*.patch"))


def explanation(name: str) -> str:
    """What is wrong with a bug, in a sentence."""
    return (PATCHES / f"{name}.patch").read_text().partition("\n")[0]


def apply(name: str, root: Path, *, check: bool = False) -> None:
    """Apply a bug to the source below a directory; with `check`, only see whether it applies.

    Raises:
        ValueError: it does not apply.
    """
    command = ["git", "apply", *(["--check"] if check else []), str(PATCHES / f"{name}.patch")]
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{name}: {done.stderr.strip()}")


def find(name: str, most: int) -> tuple[int, str] | None:
    """Run seeds with a bug: the first that finds it, and what the judge said.

    A seed that fails without the bug, too, is left out.
    """
    with tempfile.TemporaryDirectory(prefix="pairbus-bug-") as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
        apply(name, root)
        first = 1
        while first <= most:
            options = ["--until-failure", "--seeds", f"{first}:{most}", "--jobs", "1"]
            shown = _simulate(root / "src", options).stdout.splitlines()
            found = [line for line in shown if line.startswith("seed ")]
            if not found:
                return None
            seed, _, what = found[-1].partition(": ")
            number = int(seed.removeprefix("seed "))
            if _simulate(ROOT / "src", ["--seed", str(number)]).returncode == 0:
                return number, what.rpartition("redirected: ")[2]
            first = number + 1
    return None


def _simulate(source: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "simulation", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )


def table(found: dict[str, tuple[int, str] | None], known: str = "") -> str:
    """The table for the documentation.

    Args:
        found: the findings of this run, by bug.
        known: the table so far, for the bugs that were not run now.
    """
    cells = {line.split("`")[1]: line.split("|")[3:5] for line in known.splitlines() if "`" in line}
    lines = ["| Bug | What is wrong | Seeds | Found as |", "|---|---|---|---|"]
    for name in names():
        if name in found:
            answer = found[name]
            seeds, what = (str(answer[0]), _kind(answer[1])) if answer else ("not found", "")
        else:
            seeds, what = (cell.strip() for cell in cells.get(name, ["not run", ""]))
        lines.append(f"| `{name}` | {explanation(name)} | {seeds} | {what} |")
    return "\n".join(lines) + "\n"


def _kind(what: str) -> str:
    """The kind of problem, without the names of messages."""
    for kind in (
        "reserved property", "cost counts", "tables disagree", "lost", "unexpected",
        "duplicated without a fault", "beyond the deadline", "overtaken",
        "changed", "without a receipt", "the backlog does not become empty",
        "do not go to the primary again", "although the primary was healthy",
        "pings a healthy primary",
    ):  # fmt: skip
        if kind in what:
            return kind
    return "the run fails"


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 1 if a bug was not found."""
    parser = argparse.ArgumentParser(prog="python -m simulation.planted", description=__doc__)
    parser.add_argument("bug", nargs="*", help="names; all if left out")
    parser.add_argument("--most", type=int, default=1000, help="seeds to try")
    parser.add_argument("--jobs", type=int, default=2, help="bugs at the same time")
    parser.add_argument("--write", action="store_true", help="write the table to the docs")
    options = parser.parse_args(arguments)
    found: dict[str, tuple[int, str] | None] = {}
    wanted = options.bug or names()
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = pool.map(lambda name: find(name, options.most), wanted)
        for name, answer in zip(wanted, answers, strict=True):
            found[name] = answer
            print(f"{name}: {f'seed {answer[0]}: {answer[1][:200]}' if answer else 'not found'}")
            sys.stdout.flush()
            if options.write:
                TABLE.write_text(table(found, TABLE.read_text() if TABLE.exists() else ""))
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
