"""Twelve mistakes that people make, each planted in a pair: the drill finds and names each."""

import socket
import time
from datetime import timedelta

import pytest

from pairbus import broker
from pairbus.broker.entities.model import AccessRight, AuthorizationRule, QueueDescription
from pairbus.broker.settings import DEFAULT_KEY_NAME, WELL_KNOWN_KEY
from pairbus.monitoring.backlog_queues import create_missing
from pairbus.monitoring.endpoints import Endpoint
from pairbus.names import format_connection_string, join_host, replace_endpoint
from tests.drill.conftest import BACKLOG, ORDERS, QUEUES, World, named
from tests.sas import make_token

pytestmark = [pytest.mark.sdk, pytest.mark.slow, pytest.mark.timeout(240)]


def test_healthy_pair_gets_no_finding(world):
    assert world.findings() == {}


@pytest.mark.parametrize(
    ("rights", "lacking"),
    [((AccessRight.SEND,), "Listen"), ((AccessRight.LISTEN,), "Send")],
    ids=["listen", "send"],
)
def test_missing_right_is_named(world, rights, lacking):
    rule = AuthorizationRule("some", rights, "key-of-the-queue")
    world.replace_backlog_queue(authorization_rules=(rule,))
    authority = Endpoint(world.secondary.connection_string).host
    weak = format_connection_string(
        authority, key_name="some", key="key-of-the-queue", is_emulator=True
    )
    pair = world.with_strings(world.primary.connection_string, weak, count=1)
    found = world.findings(pair)
    assert found["secondary rights"] == (
        f"critical: secondary: the credentials lack the right {lacking} on {BACKLOG}"
    )


def test_wrong_lock_duration_is_named(world):
    world.replace_backlog_queue(lock_duration=timedelta(seconds=10), max_delivery_count=2**31 - 1)
    found = world.findings()
    assert found["backlog lock duration"] == (
        f"warning: {BACKLOG} has a lock duration of 10s, not 1m 00s"
    )


def test_short_duplicate_window_is_named(world):
    short = {**ORDERS, "duplicate_detection_history_time_window": timedelta(minutes=10)}
    world.primary.create_queue("bills", **short)
    assert world.findings() == {
        "duplicate windows": "warning: bills detects duplicates for 10m 00s only"
    }


def test_sessions_mismatch_is_named(world):
    world.replace_backlog_queue(requires_session=True)
    assert world.findings()["backlog sessions"] == f"critical: {BACKLOG} requires sessions"


def test_full_backlog_is_named(world):
    world.replace_backlog_queue(max_size_in_megabytes=1024)
    entity = world.secondary.do(lambda ns: ns.catalog.entity(BACKLOG))
    world.secondary.do(lambda ns: setattr(entity.main.store, "size", 1024**3))  # as if it were
    found = world.findings()
    assert found["backlog size"] == f"critical: {BACKLOG} is full (1,024 MB of 1,024 MB)"


def test_expired_signature_is_named(world):
    authority = Endpoint(world.primary.connection_string).host
    token = make_token(
        f"http://{authority}/", DEFAULT_KEY_NAME, WELL_KNOWN_KEY, expires_at=time.time() - 60
    )
    expired = format_connection_string(authority, signature=token, is_emulator=True)
    pair = world.with_strings(expired, world.secondary.connection_string)
    found = world.findings(pair)
    assert found["primary credentials"].startswith(
        "critical: primary: the shared access signature expired at "
    )


def test_refused_key_is_named_and_not_shown(world):
    authority = Endpoint(world.secondary.connection_string).host
    wrong = format_connection_string(
        authority, key_name=DEFAULT_KEY_NAME, key="regenerated", is_emulator=True
    )
    found = world.findings(world.with_strings(world.primary.connection_string, wrong))
    assert found["secondary credentials"].startswith(
        "critical: secondary: the key or token is refused"
    )
    assert "regenerated" not in str(found).replace("was regenerated", "")


def test_wrong_host_name_is_named(world):
    wrong = replace_endpoint(world.primary.connection_string, "contoso-typo.invalid:5672")
    found = world.findings(world.with_strings(wrong, world.secondary.connection_string))
    assert found["primary reachability"].startswith(
        "critical: primary: the name contoso-typo.invalid cannot be resolved"
    )


def test_wrong_primary_namespace_is_named(world):
    pair = world.with_strings(
        world.primary.connection_string, world.secondary.connection_string, name="kontoso"
    )
    found = world.findings(pair)
    assert found["namespaces"] == (
        "critical: the primary is called contoso, but its backlog queues are searched under kontoso"
    )


def test_closed_port_is_named(world):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        port = closed.getsockname()[1]
        wrong = replace_endpoint(world.secondary.connection_string, join_host("127.0.0.1", port))
        found = world.findings(world.with_strings(world.primary.connection_string, wrong))
    assert found == {
        "secondary reachability": f"critical: secondary: port {port} of 127.0.0.1 is closed "
        "(Connection refused)"
    }


def test_time_to_live_shorter_than_the_outage_is_named(world):
    world.primary.create_queue("news", default_message_time_to_live=timedelta(minutes=30))
    world.replace_backlog_queue(
        default_message_time_to_live=timedelta(minutes=30),
        dead_lettering_on_message_expiration=True,
        max_delivery_count=2**31 - 1,
    )
    assert world.findings() == {
        "time to live": "warning: news has a default time to live of 30m 00s",
        "backlog time to live": f"critical: {BACKLOG} keeps messages for 30m 00s only",
    }


def test_missing_backlog_queue_is_named(world):
    world.secondary.do(lambda ns: ns.admin.delete_queue(BACKLOG))
    assert world.findings() == {
        "backlog queues": f"warning: 1 of {QUEUES} backlog queues do not exist: {BACKLOG}"
    }


def test_missing_destination_is_named(world):
    found = world.findings(entities=("odrers",))
    assert found["destinations"] == "critical: primary: there is no queue or topic odrers"


@pytest.mark.parametrize("role", ["primary", "secondary"])
def test_clock_off_by_ten_minutes_is_named(role):
    late = {"clock": lambda: time.time() + 600}
    with (
        broker.run("contoso", **(late if role == "primary" else {})) as primary,
        broker.run("contoso-dr", **(late if role == "secondary" else {})) as secondary,
    ):
        world = World(primary, secondary)
        create_missing(world.pair, QUEUES)
        report = world.drill().run()
    found = named(report)
    assert found["clocks"].startswith("critical: the clock of this machine is ")
    assert found["clocks"].endswith(f"behind the {role}'s")


def test_throttled_primary_is_named(world):
    world.primary.faults.throttle()
    report = world.drill().run()
    assert report.verdict == "critical"
    assert named(report)["throttling"].startswith(
        "critical: primary: the namespace is being throttled"
    )


def test_throttled_secondary_is_named(world):
    world.secondary.faults.throttle(on="attach")
    assert world.findings()["throttling"].startswith(
        "critical: secondary: the namespace is being throttled"
    )


def test_same_problem_of_many_entities_is_one_finding(world):
    for name in ("a", "b", "c"):
        world.primary.do(
            lambda ns, name=name: ns.admin.create(
                QueueDescription(name, default_message_time_to_live=timedelta(minutes=1))
            )
        )
    found = world.findings()
    assert found == {"time to live": "warning: a has a default time to live of 1m 00s (and 2 more)"}
