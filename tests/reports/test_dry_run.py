"""A dry run before Spark has counted anything."""

from types import SimpleNamespace

import pytest

from pairbus.exceptions import SyphonError
from pairbus.reports import dry_run as module


def test_transform_that_fails_is_reported_in_one_line(monkeypatch):
    pytest.importorskip("pyspark")

    def broken(_messages):
        raise KeyError("amount")

    messages = SimpleNamespace(columns=["destination"])
    source = SimpleNamespace(load=lambda: None)
    source.format = source.options = lambda *_args, **_options: source
    setup = SimpleNamespace(options=SimpleNamespace(ttl_policy="full"))
    monkeypatch.setattr(module, "Setup", SimpleNamespace(of=lambda _options: setup))
    monkeypatch.setattr(module, "load_transform", lambda _setup: broken)
    monkeypatch.setattr(module, "QueueCounter", lambda _setup: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(module, "check_namespaces", lambda _setup, _counter: None)
    monkeypatch.setattr(module, "peek_options", lambda _setup: {})
    monkeypatch.setattr(module, "prepare_session", lambda _spark: SimpleNamespace(read=source))
    monkeypatch.setattr(module, "restore", lambda _rows, **_options: messages)

    with pytest.raises(SyphonError, match="the transform broken failed: KeyError"):
        module.dry_run(None, spark=SimpleNamespace())


def test_connections_are_closed_if_a_namespace_cannot_be_used(monkeypatch):
    pytest.importorskip("pyspark")
    closed = []

    def refuse(_setup, _counter):
        raise SyphonError("refused")

    counter = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr(module, "Setup", SimpleNamespace(of=lambda _options: None))
    monkeypatch.setattr(module, "load_transform", lambda _setup: None)
    monkeypatch.setattr(module, "QueueCounter", lambda _setup: counter)
    monkeypatch.setattr(module, "check_namespaces", refuse)

    with pytest.raises(SyphonError, match="refused"):
        module.dry_run(None)
    assert closed == [True]
