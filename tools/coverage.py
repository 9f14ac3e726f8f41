"""Measure the branch coverage of the pure packages by their own tests: `coverage.py [LEAST]`.

The pure packages are listed in pyproject.toml, where `tests/test_purity.py` reads them too. Prints
a line per package, and fails where one is covered by less than LEAST per cent (95).
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = [
    "tests/amqp",
    "tests/broker/admin/test_model.py",
    "tests/broker/admin/test_xml.py",
    "tests/broker/entities",
    "tests/broker/filters",
    "tests/cli/test_cost.py",
    "tests/envelope",
    "tests/pairing/core",
    "tests/syphon",
    "tests/vocabulary",
]


def per_package(report: Path) -> dict[str, float]:
    """Read the covered per cent of lines and branches of each package from coverage's JSON."""
    covered: defaultdict[str, int] = defaultdict(int)
    of: defaultdict[str, int] = defaultdict(int)
    for file, found in json.loads(report.read_text())["files"].items():
        package = Path(file).parent.relative_to("src/pairbus").as_posix()
        summary = found["summary"]
        covered[package] += summary["covered_lines"] + summary["covered_branches"]
        of[package] += summary["num_statements"] + summary["num_branches"]
    return {package: 100 * covered[package] / of[package] for package in sorted(of)}


def main() -> int:
    """Run the tests, print the figures, and exit non-zero if a package has too little."""
    least = float(sys.argv[1]) if len(sys.argv) > 1 else 95.0
    with tempfile.TemporaryDirectory() as folder:
        coverage = [sys.executable, "-m", "coverage"]
        data = f"--data-file={folder}/data"
        command = [*coverage, "run", data, "-m", "pytest", "-q", "-m", "not long and not spark"]
        subprocess.run([*command, *TESTS], cwd=ROOT, check=True)
        report = Path(folder, "report.json")
        subprocess.run([*coverage, "json", data, "-q", "-o", report], cwd=ROOT, check=True)
        found = per_package(report)
    for package, per_cent in found.items():
        name = "pairbus" if package == "." else f"pairbus/{package}"
        print(f"{name:<26} {per_cent:5.1f} %" + ("  too little" if per_cent < least else ""))
    return int(any(per_cent < least for per_cent in found.values()))


if __name__ == "__main__":
    sys.exit(main())
