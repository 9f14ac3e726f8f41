"""`python -m benchmarks --against` marks figures that became worse, whatever their unit."""

import sys

import pytest

from benchmarks.compare import compare, line

PRINTS = """
import sys
print("send_rate {rate} msg/s")
print("send_cpu 10 us")
print("a line of words")
print("only_{rate} 1 us")
"""


@pytest.mark.parametrize(
    ("unit", "ours", "theirs", "is_worse"),
    [
        ("msg/s", 90, 100, True),
        ("msg/s", 96, 100, False),
        ("us", 110, 100, True),
        ("us", 90, 100, False),
        ("ratio", 90, 100, False),
        ("us", 1, 0, False),
    ],
)
def test_a_figure_that_is_worse_by_more_than_a_twentieth_is_marked(unit, ours, theirs, is_worse):
    assert line("figure", unit, ours, theirs).endswith("worse") == is_worse


def checkout(folder, rate):
    """A checkout whose only benchmark prints fixed figures."""
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "__main__.py").write_text(PRINTS.format(rate=rate))
    (folder / "benchmarks" / "sample.py").touch()
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return folder


def test_figures_that_both_checkouts_print_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.compare.ROOT", checkout(tmp_path / "ours", 90))
    theirs = checkout(tmp_path / "theirs", 100)
    assert list(compare("sample", theirs, rounds=2)) == [
        "send_rate 90 msg/s, theirs 100, ratio 0.90 worse",
        "send_cpu 10 us, theirs 10, ratio 1.00",
    ]


def test_a_checkout_without_an_environment_or_the_benchmark_is_named(tmp_path):
    with pytest.raises(SystemExit, match="run `make setup` there"):
        list(compare("sample", tmp_path, rounds=1))
    other = checkout(tmp_path / "other", 1)
    assert list(compare("new_one", other, rounds=1)) == [
        f"new_one: {other} does not have this benchmark"
    ]
