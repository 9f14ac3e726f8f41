"""Tests use the public surface; a private access says why nothing else can observe."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def test_each_private_access_of_a_test_has_a_reason():
    bare = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in TESTS.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"noqa:.*\bSLF001\b(?! - \w)", line) and path != Path(__file__)
    ]
    assert bare == []
