"""The live page during a real outage: two brokers, a paired client, nothing written for it."""

import os

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace
from pairbus.dashboard.serve import serving
from pairbus.monitoring.endpoints import Endpoint, Pair

pytestmark = [pytest.mark.browser, pytest.mark.sdk, pytest.mark.slow]
QUEUE = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def tab(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    yield context.new_page()
    context.close()


def keep(tab, name):
    """Screenshots for people, where one asks for them: PAIRBUS_SCREENSHOTS names a folder."""
    if folder := os.environ.get("PAIRBUS_SCREENSHOTS"):
        for theme in ("light", "dark"):
            tab.emulate_media(color_scheme=theme)
            tab.screenshot(path=f"{folder}/{name}-{theme}.png", full_page=True)
        tab.emulate_media(color_scheme="light")
        tab.set_viewport_size({"width": 390, "height": 844})
        tab.screenshot(path=f"{folder}/{name}-phone.png", full_page=True)
        tab.set_viewport_size({"width": 1280, "height": 1000})


def test_page_follows_a_real_outage_from_the_kill_to_the_first_answered_ping(tmp_path, tab):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
            secondary_admin=secondary.admin_client(),
            primary_namespace="contoso",
            backlog_queue_count=1,
            failover_interval=0,
            ping_primary_interval=1,
            ledger=str(tmp_path / "ledger"),
        )
        pair = Pair(
            primary=Endpoint(primary.connection_string),
            secondary=Endpoint(secondary.connection_string),
            explicit_namespace="contoso",
            ledger=str(tmp_path / "ledger"),
        )
        client = ServiceBusClient.from_connection_string(primary.connection_string, retry_total=0)
        with (
            pair_namespace(client, options) as paired,
            paired.get_queue_sender("orders") as sender,
            serving(pair, tick=0.1, refresh=0.5) as page,
        ):
            sender.send_messages(ServiceBusMessage("order 1"))
            tab.goto(page.url)
            tab.wait_for_selector("tr[data-entity=orders][data-phase=healthy]")
            # When the primary is killed and the application goes on sending …
            primary.kill()
            for number in range(2, 7):
                sender.send_messages(ServiceBusMessage(f"order {number}"))
            # … the page says what is failed over, why, since when, and where the messages are.
            tab.wait_for_selector("tr[data-entity=orders][data-phase=failed_over]")
            tab.wait_for_selector(f"tr[data-queue='{QUEUE}'] td[data-label=Messages]:text-is('5')")
            tab.wait_for_selector("h1:has-text('1 entity failed over')")
            tab.wait_for_selector("#brokers :text('down')")
            tab.wait_for_selector("#timeline :text('FailedOver')")
            assert "ServiceBusConnectionError" in tab.inner_text("tr[data-entity=orders] .why")
            keep(tab, "outage")
            # When the primary is back, a ping finds it, and the page says that, too.
            primary.start()
            tab.wait_for_selector("tr[data-entity=orders][data-phase=healthy]")
            tab.wait_for_selector("#timeline :text('Restored')")
            # The backlog is still there: nothing drains it here, and the page does not forget it.
            tab.wait_for_selector("h1:has-text('5 in the backlog')")
            keep(tab, "after")
