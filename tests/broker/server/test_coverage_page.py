"""The page of what the broker covers has no gaps, and tests claim nothing that does not exist."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "gen_broker_coverage.py"


def load():
    spec = importlib.util.spec_from_file_location("gen_broker_coverage", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_operation_and_property_of_the_sdk_has_a_test() -> None:
    assert load().missing() == []


def test_tests_cover_only_what_the_sdk_has() -> None:
    assert load().unknown() == []
