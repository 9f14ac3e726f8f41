"""The rules of the drill, over facts that no namespace had to be asked for."""

from datetime import timedelta

import pytest

from pairbus.drill.facts import Entity, Facts, Kind, Problem, Properties, Side
from pairbus.drill.findings import worst
from pairbus.drill.judging import judge
from pairbus.drill.settings import Expected, Settings, compared, outlook, planned, price
from pairbus.reports.price_lists import load_prices

PRIMARY = Side(role="primary", host="contoso.servicebus.windows.net", port=5671, name="contoso")
SECONDARY = Side(role="secondary", host="dr.servicebus.windows.net", port=5671, name="dr")
GOOD = Properties(
    lock_duration=timedelta(minutes=1), max_delivery_count=2**31 - 1, capacity=5 * 1024**3
)


def facts(queue=GOOD, destination=None, **changes) -> Facts:
    path = "contoso/x-servicebus-transfer/0"
    return Facts(
        **{
            "primary": PRIMARY,
            "secondary": SECONDARY,
            "primary_namespace": "contoso",
            "backlog": (Entity(path=path, properties=queue),),
            "destinations": (Entity(path="orders", properties=destination or Properties()),),
            **changes,
        }
    )


def objections(found, **expected) -> list[tuple[str, str]]:
    return [(f.level, f.check) for f in judge(found, Expected(**expected)) if f.level != "ok"]


def test_pair_in_order_gets_no_objection():
    assert objections(facts()) == []
    assert worst(judge(facts(), Expected())) == "ok"


@pytest.mark.parametrize(
    ("wrong", "level", "check"),
    [
        ({"forward_to": "elsewhere"}, "critical", "backlog forwarding"),
        ({"status": "Disabled"}, "critical", "backlog status"),
        ({"max_delivery_count": 10}, "warning", "backlog delivery count"),
        ({"auto_delete": timedelta(days=1)}, "warning", "backlog queues"),
        ({"keeps_expired": False}, "warning", "backlog queues"),
        ({"dead_letters": 3}, "warning", "backlog dead letters"),
    ],
)
def test_property_of_a_backlog_queue_that_costs_messages_is_found(wrong, level, check):
    values = {name: getattr(GOOD, name) for name in GOOD.__slots__}
    assert objections(facts(Properties(**{**values, **wrong}))) == [(level, check)]


def test_backlog_too_small_for_the_outage_is_found():
    assert objections(facts(), rate=10_000) == [("warning", "backlog size")]


def test_destination_with_larger_messages_than_the_backlog_takes_is_found():
    small = Properties(lock_duration=timedelta(minutes=1), message_limit=256 * 1024)
    large = Properties(message_limit=1024 * 1024)
    assert objections(facts(small, large)) == [("warning", "message sizes")]


def test_closed_port_with_an_open_web_port_suggests_websockets():
    blocked = Side(
        role="primary", host="contoso.servicebus.windows.net", port=5671,
        reach=Problem(Kind.CONNECTION, "timed out"), is_web_open=True,
    )  # fmt: skip
    (found,) = [f for f in judge(facts(primary=blocked), Expected()) if f.level != "ok"]
    assert "AmqpOverWebsocket" in found.remedy


def test_same_namespace_on_both_sides_is_found():
    assert ("critical", "namespaces") in objections(facts(secondary=PRIMARY))


def test_missing_manage_right_matters_only_for_the_canary_queue():
    weak = Side(
        role="primary", host="contoso.servicebus.windows.net", port=5671,
        administration=Problem(Kind.RIGHT, "Manage is required"),
    )  # fmt: skip
    assert objections(facts(primary=weak)) == []
    found = judge(facts(primary=weak), Expected(), needs_canary=True)
    assert [f.check for f in found if f.level == "critical"] == ["primary administration"]


def test_user_intervals_are_compared_with_those_of_the_drill():
    first, second = compared(Settings(expected=Expected(rate=50)))
    assert "sends fail for 1m 00s" in first
    assert "3,000 calls" in first
    assert "up to 1m 00s after it is back" in second
    assert "redirected" in compared(Settings(user_failover_interval=0))[0]


def test_costs_grow_with_the_messages():
    prices, settings = load_prices(), Settings()
    small = price(planned(settings, 10).total, prices, settings.rules)
    large = price(planned(Settings(messages=2000), 10).total, prices, settings.rules)
    assert 0 < small.amount < large.amount
    busy = Settings(expected=Expected(rate=1000))
    assert outlook(busy, 10, prices).amount > outlook(settings, 10, prices).amount
