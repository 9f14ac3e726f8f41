"""Options check themselves, and say what is wrong."""

import dataclasses
from datetime import timedelta
from functools import partial

import pytest

import pairbus
from pairbus import SendAvailabilityPairedNamespaceOptions, SyphonOptions, aio


def options(**changes):
    return SendAvailabilityPairedNamespaceOptions(
        secondary=object(), secondary_admin=object(), **changes
    )


def test_defaults_are_those_of_the_old_client():
    made = options()

    assert made.backlog_queue_count == 10
    assert made.failover_interval == 60.0
    assert made.ping_primary_interval == 60.0
    assert made.enable_syphon is False
    assert made.send_timeout == 30.0
    assert made.backlog_cooldown == 60.0
    assert made.oversize == "warn"
    assert made.ttl_policy == "full"


def test_times_may_be_timedeltas():
    assert options(failover_interval=timedelta(minutes=2)).failover_interval == 120.0
    assert options(send_timeout=timedelta(seconds=5)).send_timeout == 5.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backlog_queue_count", 0),
        ("backlog_queue_count", 1.5),
        ("backlog_queue_count", True),
        ("failover_interval", -1),
        ("failover_interval", 3601),
        ("failover_interval", float("nan")),
        ("failover_interval", "60"),
        ("ping_primary_interval", 0.5),
        ("ping_primary_interval", 1801),
        ("send_timeout", 0),
        ("backlog_cooldown", -1),
        ("oversize", "shrug"),
        ("ttl_policy", "forever"),
        ("primary_namespace", ""),
        ("primary_namespace", "a/b"),
        ("classify", 3),
        ("observers", [3]),
        ("observers", print),
        ("enable_syphon", True),
    ],
)
def test_option_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name if name != "observers" else "observer"):
        options(**{name: value})


@pytest.mark.parametrize("name", ["failover_interval", "ping_primary_interval"])
def test_bounds_are_inside(name):
    low, high = {"failover_interval": (0, 3600), "ping_primary_interval": (1, 1800)}[name]

    assert getattr(options(**{name: low}), name) == low
    assert getattr(options(**{name: high}), name) == high


def test_options_are_frozen_and_changed_by_replace():
    made = options()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.send_timeout = 3

    assert dataclasses.replace(made, send_timeout=3).send_timeout == 3.0


@pytest.mark.parametrize(
    "name", ["max_messages_per_second", "max_bytes_per_second", "credits_per_second"]
)
@pytest.mark.parametrize("rate", [0, -1.0, float("inf"), float("nan")])
def test_a_rate_of_the_syphon_is_finite_and_positive(name, rate):
    with pytest.raises(ValueError, match=f"{name} must be greater than 0, and finite"):
        SyphonOptions(primary="P", secondary="S", **{name: rate})


def test_syphon_options_show_no_secret():
    made = SyphonOptions(primary="Endpoint=sb://x;SharedAccessKey=hush", secondary="VARIABLE")

    assert "hush" not in repr(made)
    assert "hush" not in repr(options(enable_syphon=True, syphon=made))


def test_urls_of_object_stores_are_not_shown():
    url = "s3://name:hush@bucket/books"

    assert "hush" not in repr(
        SyphonOptions(primary="P", secondary="S", checkpoint=url, state=url, ledger=url)
    )
    assert "hush" not in repr(options(ledger=url))


@pytest.mark.parametrize("kind", [options, partial(SyphonOptions, primary="P", secondary="S")])
def test_connection_string_in_the_place_of_a_name_is_refused_and_not_shown(kind):
    with pytest.raises(ValueError, match="primary_namespace must be a name") as caught:
        kind(primary_namespace="Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=hush")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "  ", None, 3])
def test_syphon_needs_both_ends(value):
    with pytest.raises(ValueError, match="secondary"):
        SyphonOptions(primary="P", secondary=value)


def test_both_worlds_have_the_same_names():
    assert pairbus.__all__ == aio.__all__
    for name in pairbus.__all__:
        assert getattr(pairbus, name) is not None
        assert getattr(aio, name) is not None
    assert set(pairbus.__all__) <= set(dir(pairbus))
    with pytest.raises(AttributeError):
        _ = pairbus.no_such_name
