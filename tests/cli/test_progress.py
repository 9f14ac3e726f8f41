"""The words that a command shows while Spark starts."""

import pytest

from pairbus.cli import progress
from pairbus.spark import archive
from pairbus.spark.java import JavaNotFoundError

PLAIN = "starting Java and Spark"


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)


def with_archive(monkeypatch, answer):
    monkeypatch.setattr(archive, "has_archive", answer)


def test_on_a_terminal_a_hint_says_how_spark_starts_faster(terminal, monkeypatch):
    with_archive(monkeypatch, lambda: False)
    for master in (None, "local[*]"):
        assert progress.starting_spark(master) == (
            "starting Spark (faster after `pairbus spark class-archive`)"
        )


def test_there_is_no_hint_with_an_archive_on_a_cluster_or_without_java(terminal, monkeypatch):
    with_archive(monkeypatch, lambda: True)
    assert progress.starting_spark(None) == PLAIN

    def no_java():
        raise JavaNotFoundError

    with_archive(monkeypatch, no_java)
    assert progress.starting_spark(None) == PLAIN
    with_archive(monkeypatch, lambda: False)
    assert progress.starting_spark("spark://10.0.0.1:7077") == PLAIN


def test_there_is_no_hint_where_the_output_is_not_a_terminal(monkeypatch):
    with_archive(monkeypatch, lambda: False)
    assert progress.starting_spark(None) == PLAIN
