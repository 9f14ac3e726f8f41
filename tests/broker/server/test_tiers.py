"""The limits of the Standard tier, as the SDK meets them. A fake clock: nothing waits."""

from __future__ import annotations

import json
import logging
import urllib.request

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus.amqp.message import Message
from pairbus.broker import Limits, run
from pairbus.broker.config import ConfigError
from pairbus.client import BulkConnection
from pairbus.testing import FakeClock

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


@pytest.fixture
def clock():
    return FakeClock(1_800_000_000.0)


@pytest.fixture
def start(clock):
    """Starts Standard namespaces on the fake clock; `start(credits_per_second=5)`."""
    started = []

    def begin(**options):
        ns = run(**{"tier": "standard", "clock": clock, **options}).__enter__()
        started.append(ns)
        ns.create_queue("q")
        return ns

    yield begin
    for ns in started:
        ns.close()


def client(ns, **options):
    return ServiceBusClient.from_connection_string(
        ns.connection_string, **{"retry_total": 0, **options}
    )


def control(ns, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{ns.port}/$control/{path}") as answer:
        return answer.read().decode()


def test_standard_is_the_default(monkeypatch):
    monkeypatch.delenv("PAIRBUS_BROKER_TIER")
    with run() as ns, ns.admin_client() as admin:
        assert admin.get_namespace_properties().messaging_sku == "Standard"
        limits = json.loads(control(ns, "limits"))
    assert limits["tier"] == "standard"
    assert limits["credits_per_second"] == 1000
    assert limits["idle_link_timeout"] == 600
    assert limits["idle_connection_timeout"] == 60


def test_configuration_file_sets_tier_and_limits_and_arguments_win(tmp_path):
    namespace = {"Name": "n", "Tier": "Premium", "Limits": {"IdleLinkTimeout": 5}}
    content = {"UserConfig": {"Namespaces": [namespace]}}
    with run("n", entities=content, idle_connection_timeout=0) as ns:
        limits = json.loads(control(ns, "limits"))
    assert (limits["tier"], limits["credits_per_second"]) == ("premium", 0)
    assert (limits["idle_link_timeout"], limits["idle_connection_timeout"]) == (5, 0)
    with run("n", entities=content, tier="standard", idle_link_timeout=7) as ns:
        limits = json.loads(control(ns, "limits"))
    assert (limits["tier"], limits["idle_link_timeout"]) == ("standard", 7)
    for wrong in ({"Tier": "Gold"}, {"Limits": {"Speed": 1}}, {"Limits": {"IdleLinkTimeout": -1}}):
        with pytest.raises(ConfigError), run("n", entities={"Namespaces": [namespace | wrong]}):
            pass


def test_unknown_tier_and_negative_limit_are_refused():
    with pytest.raises(ValueError, match="not a tier"):
        run(tier="gold")
    with pytest.raises(ValueError, match="idle_link_timeout"):
        run(idle_link_timeout=-1)


def test_a_message_may_have_256_kilobytes(start):
    ns = start()
    with client(ns) as sb, sb.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage(b"x" * 255 * 1024))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 256 * 1024))
        assert sender.create_message_batch().max_size_in_bytes == 256 * 1024


# -- throttling ----------------------------------------------------------------------------------


def test_sends_beyond_the_credits_of_a_second_are_refused_with_the_text_of_the_service(
    start, clock, caplog
):
    ns = start(namespace="contoso", credits_per_second=5)
    with client(ns) as sb, sb.get_queue_sender("q") as sender:
        with caplog.at_level(logging.WARNING, "pairbus.broker"):
            for _ in range(5):
                sender.send_messages(ServiceBusMessage("served"))
            for _ in range(3):
                with pytest.raises(ServiceBusServerBusyError) as caught:
                    sender.send_messages(ServiceBusMessage("refused"))
        assert (
            "The request was terminated because the namespace contoso is being throttled. "
            "Error code : 50009. Please wait 2 seconds and try again." in str(caught.value)
        )
        clock.advance(1)
        sender.send_messages(ServiceBusMessage("served"))
    # What was refused is not there; it is counted, and logged once, with the switch.
    bodies = ns.do(lambda n: [d.message.bare for d in n.peek("q", 0, 100)])
    assert len(bodies) == 6
    assert not any(b"refused" in (body or b"") for body in bodies)
    assert json.loads(control(ns, "limits"))["throttled"] == {"q": {"send": 3}}
    line = 'pairbus_broker_throttled_operations_total{entity="q",operation="send"} 3'
    assert line in control(ns, "metrics")
    warnings = [r.getMessage() for r in caplog.records if "THROTTLING" in r.getMessage()]
    assert len(warnings) == 1
    assert "--credits-per-second 0" in warnings[0]


def test_a_batch_is_served_whole_and_the_rest_is_owed(start, clock):
    ns = start(credits_per_second=10)
    with client(ns) as sb, sb.get_queue_sender("q") as sender:
        sender.send_messages([ServiceBusMessage("x") for _ in range(25)])
        for _ in range(2):
            with pytest.raises(ServiceBusServerBusyError):
                sender.send_messages(ServiceBusMessage("x"))
            clock.advance(1)
        for _ in range(5):  # of the third second's ten, five are left
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("x"))


def test_a_debt_is_forgiven_where_the_settings_say_so(start, clock):
    ns = start(limits=Limits(credits_per_second=10, is_debt_owed=False))
    with client(ns) as sb, sb.get_queue_sender("q") as sender:
        sender.send_messages([ServiceBusMessage("x") for _ in range(25)])
        clock.advance(1)
        sender.send_messages(ServiceBusMessage("x"))


def test_receiving_and_peeking_cost_a_credit_per_message(start, clock):
    ns = start(credits_per_second=10)
    with client(ns) as sb:
        with sb.get_queue_sender("q") as sender:
            sender.send_messages([ServiceBusMessage("x") for _ in range(10)])
        clock.advance(1)
        with sb.get_queue_receiver("q") as receiver:
            assert len(receiver.receive_messages(6, max_wait_time=5)) == 6
            assert len(receiver.peek_messages(4)) == 4
            with pytest.raises(ServiceBusServerBusyError):
                receiver.peek_messages(1)
            assert receiver.receive_messages(1, max_wait_time=0.5) == []
            clock.advance(1)  # the grant that waited is served
            assert len(receiver.receive_messages(1, max_wait_time=5)) == 1
    throttled = json.loads(control(ns, "limits"))["throttled"]["q"]
    assert throttled["peek"] == 1
    assert throttled["receive"] >= 1


def test_a_throttled_receiver_is_detached_where_the_settings_say_so(start, clock):
    ns = start(limits=Limits(credits_per_second=10, detach_throttled_receivers=True))
    with client(ns) as sb:
        with sb.get_queue_sender("q") as sender:
            sender.send_messages([ServiceBusMessage("x") for _ in range(10)])
        with (
            sb.get_queue_receiver("q") as receiver,
            pytest.raises(ServiceBusServerBusyError, match="50009"),
        ):
            receiver.receive_messages(1, max_wait_time=5)
        clock.advance(1)
        with sb.get_queue_receiver("q") as receiver:  # the SDK does not recover the former one
            assert len(receiver.receive_messages(1, max_wait_time=5)) == 1


def test_filters_of_a_topic_cost_a_credit_each(start, clock):
    ns = start(credits_per_second=9)
    ns.create_topic("t")
    ns.create_subscription("t", "a")
    ns.create_subscription("t", "b")
    with client(ns) as sb, sb.get_topic_sender("t") as sender:
        for _ in range(3):  # one for the message, two for the filters
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("x"))


def test_messages_of_one_packet_are_throttled_like_single_ones(start, clock):
    ns = start(credits_per_second=100)
    ns.create_topic("t")
    for number in range(9):
        ns.create_subscription("t", f"s{number}")
    payloads = [Message.build(data=b"x").encode() for _ in range(100)]
    with BulkConnection(ns.connection_string) as connection:
        # each costs one credit, and nine for the filters
        served = [outcome.is_accepted for outcome in connection.sender("t").send_each(payloads)]
        assert served == [True] * 10 + [False] * 90
        clock.advance(1)
        served = [outcome.is_accepted for outcome in connection.sender("t").send_each(payloads)]
        assert served == [True] * 10 + [False] * 90


def test_an_operation_on_an_entity_costs_ten_credits(start, clock):
    ns = start(credits_per_second=30)
    with ns.admin_client(retry_total=0) as admin:
        for _ in range(3):
            admin.get_queue("q")
        with pytest.raises(HttpResponseError, match="50009") as caught:
            admin.get_queue("q")
        assert caught.value.status_code == 503
        clock.advance(1)
        admin.get_queue("q")


def test_the_sdk_retries_until_the_next_second(start):
    ns = start(clock=None, credits_per_second=40)
    with client(ns, retry_total=5, retry_backoff_factor=0.1) as sb:
        with sb.get_queue_sender("q") as sender:
            # The list leaves a debt of two seconds, so that the next send is throttled.
            sender.send_messages([ServiceBusMessage("x") for _ in range(120)])
            for _ in range(5):
                sender.send_messages(ServiceBusMessage("x"))
        received = 0
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with sb.get_queue_receiver("q", receive_mode=mode) as receiver:
            while received < 125:
                received += len(receiver.receive_messages(50, max_wait_time=5))
    assert json.loads(control(ns, "limits"))["throttled"]["q"]["send"] > 0


def test_premium_does_not_throttle(start):
    ns = start(tier="premium")
    with client(ns) as sb, sb.get_queue_sender("q") as sender:
        sender.send_messages([ServiceBusMessage("x") for _ in range(3000)])
        sender.send_messages(ServiceBusMessage("x" * 1_000_000))


# -- idle links ----------------------------------------------------------------------------------


def test_an_idle_sender_is_detached_after_ten_minutes(start, clock):
    ns = start()
    with client(ns) as sb, sb.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        clock.advance(599)
        sender.send_messages(ServiceBusMessage("x"))  # in use: ten minutes more
        clock.advance(599)
        assert json.loads(control(ns, "limits"))["idle_links_detached"] == 0
        clock.advance(1)
        assert json.loads(control(ns, "limits"))["idle_links_detached"] == 1
        with pytest.raises(ServiceBusError):  # the SDK drops the condition of a sender's detach
            sender.send_messages(ServiceBusMessage("x"))
        sender.send_messages(ServiceBusMessage("x"))


def test_an_idle_receiver_is_detached_with_and_without_credit(start, clock):
    ns = start()
    with client(ns) as sb, sb.get_queue_receiver("q", prefetch_count=50) as receiver:
        assert receiver.receive_messages(1, max_wait_time=0.2) == []
        clock.advance(600)
        assert json.loads(control(ns, "limits"))["idle_links_detached"] == 1
        with sb.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        expected = r"AmqpMessageConsumer\.IdleTimerExpired: Idle timeout: 00:10:00"
        with pytest.raises(ServiceBusError, match=expected):
            receiver.receive_messages(1, max_wait_time=5)
        assert len(receiver.receive_messages(1, max_wait_time=5)) == 1


def test_a_link_is_used_at_the_time_of_its_message_and_not_of_the_last_deadline():
    class QuietClock(FakeClock):
        """Tells nobody that time has passed, as a real clock does."""

        def pass_by(self, seconds):
            self._now += seconds

    clock = QuietClock(1_800_000_000.0)
    with run(clock=clock) as ns:
        ns.create_queue("q")
        with client(ns) as sb, sb.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("x"))
            clock.pass_by(599)
            sender.send_messages(ServiceBusMessage("x"))
            clock.advance(2)
            assert json.loads(control(ns, "limits"))["idle_links_detached"] == 0


def test_idle_links_of_a_management_node_are_detached(start, clock):
    ns = start()
    with client(ns) as sb, sb.get_queue_receiver("q") as receiver:
        receiver.peek_messages(1)
        clock.advance(599)
        receiver.peek_messages(1)  # in use: ten minutes more, but not for the receiver
        clock.advance(599)
        assert json.loads(control(ns, "limits"))["idle_links_detached"] == 1
        clock.advance(1)
        assert json.loads(control(ns, "limits"))["idle_links_detached"] == 3
        with pytest.raises(ServiceBusError, match="Management Operation error"):
            receiver.peek_messages(1)
        assert receiver.peek_messages(1) == []


def test_with_retries_the_sdk_sends_on_a_detached_link(start, clock):
    ns = start()
    with (
        client(ns, retry_total=3, retry_backoff_factor=0.01) as sb,
        sb.get_queue_sender("q") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        clock.advance(600)
        sender.send_messages(ServiceBusMessage("x"))


def test_a_connection_without_links_is_closed_after_a_minute(start, clock):
    ns = start()
    with client(ns) as sb:
        sender = sb.get_queue_sender("q")
        with sender:
            sender.send_messages(ServiceBusMessage("x"))
            clock.advance(600)  # the link is detached
            assert json.loads(control(ns, "limits"))["idle_links_detached"] == 1
            clock.advance(59)
            assert json.loads(control(ns, "health"))["connections"] == 1
            clock.advance(1)
            assert json.loads(control(ns, "limits"))["idle_connections_closed"] == 1
            with pytest.raises((ServiceBusConnectionError, ServiceBusError)):
                sender.send_messages(ServiceBusMessage("x"))
            sender.send_messages(ServiceBusMessage("x"))


def test_zero_switches_the_idle_limits_off(start, clock):
    ns = start(idle_link_timeout=0, idle_connection_timeout=0)
    with client(ns) as sb, sb.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        clock.advance(100_000)
        sender.send_messages(ServiceBusMessage("x"))
    assert json.loads(control(ns, "limits"))["idle_links_detached"] == 0
