"""The live page in real Chromium: it shows an outage as it happens, and pausing works."""

import re

import pytest
from playwright.sync_api import expect

from pairbus.dashboard.serve import serving
from pairbus.monitoring.endpoints import Pair
from pairbus.syphon.state import StateDirectory

from .conftest import ago, entity

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def live(scene):
    scene.client(entity("orders"), entity("bills"))
    scene.syphon(state="idle", remaining=0, queues=[])
    with serving(
        Pair(explicit_namespace="contoso", ledger=str(scene.ledger)), tick=0.05, refresh=0.2
    ) as page:
        yield page


@pytest.fixture
def tab(browser, request):
    """A tab; what its console complains about is an error of the test."""
    options = getattr(request, "param", {})
    context = browser.new_context(**options)
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    requested: list[str] = []
    tab.on("request", lambda r: requested.append(r.url))
    tab.requested = requested
    tab.complaints = complaints
    yield tab
    context.close()
    assert complaints == []


def test_outage_shows_as_it_happens_without_reloading(live, scene, tab):
    tab.goto(live.url)
    tab.wait_for_selector("#live[data-state=live]")
    assert tab.inner_text("h1") == "All is well"
    # When an entity fails over …
    scene.client(
        entity("orders", "failed_over"),
        entity("bills"),
        events=[{"event": "FailedOver", "at": ago(0), "entity": "orders", "reason": "refused"}],
    )
    # … the page says so by itself: in the banner, in the table, in the timeline and in the title.
    tab.wait_for_selector("tr[data-entity=orders][data-phase=failed_over]")
    assert "1 entity failed over" in tab.inner_text("h1")
    row = tab.inner_text("tr[data-entity=orders]")
    assert "connection refused" in row
    assert re.search(r"in 1m", row)
    assert "FailedOver" in tab.inner_text("#timeline")
    assert tab.title().startswith("1 entity failed over")
    # When it is back, that shows too.
    scene.client(entity("orders"), entity("bills"))
    tab.wait_for_selector("tr[data-entity=orders][data-phase=healthy]")
    assert tab.inner_text("h1") == "All is well"


def test_nothing_is_asked_of_another_host(live, tab):
    tab.goto(live.url)
    tab.wait_for_selector("#live[data-state=live]")
    assert all(url.startswith((live.url, "data:")) for url in tab.requested)


def test_pause_and_resume_work_from_the_keyboard(live, scene, tab):
    scene.syphon(state="running")
    tab.goto(live.link)
    assert "token" not in tab.url
    tab.wait_for_selector("[data-syphon=s1][data-state=running]")
    tab.keyboard.press("p")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#toast:has-text('Paused')")
    assert StateDirectory(scene.checkpoint).control().paused
    scene.syphon(state="paused")
    tab.wait_for_selector("button:has-text('Resume')")
    # The focus stays on the button while it changes: Enter presses it again.
    assert tab.evaluate("document.activeElement.textContent") == "Resume"
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#toast:has-text('Resumed')")
    assert not StateDirectory(scene.checkpoint).control().paused


def test_without_the_token_the_button_is_off(live, scene, tab):
    scene.syphon(state="running")
    tab.goto(live.url)
    tab.wait_for_selector("[data-syphon=s1][data-state=running]")
    assert tab.is_disabled("button[data-action]")


def test_dead_letters_are_coloured(live, scene, tab):
    scene.syphon(
        queues=[{"path": "contoso/x-servicebus-transfer/0", "active": 3, "dead_letters": 2}]
    )
    tab.goto(live.url)
    # A locator, which is looked up again: the live page replaces the row with each update.
    cell = tab.locator("tr[data-queue='contoso/x-servicebus-transfer/0'] .bad-text")
    expect(cell).to_have_text("2")
    expect(cell).to_have_css("color", "rgb(180, 35, 24)")


@pytest.mark.parametrize(
    "tab", [{"viewport": {"width": 360, "height": 740}, "is_mobile": True}], indirect=True
)
def test_phone_needs_no_sideways_scrolling(live, scene, tab):
    scene.client(
        entity("a-queue/with/a/very/long/name/that/does/not/fit/on/a/line", "failed_over"),
        entity("orders"),
    )
    scene.syphon()
    for path in ("", "events", "cost"):
        tab.goto(live.url + path)
        tab.wait_for_selector("#live[data-state=live]")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(
    "tab", [{"color_scheme": "dark"}, {"color_scheme": "light"}], indirect=True
)
def test_theme_follows_the_system_until_it_is_chosen(live, tab):
    tab.goto(live.url)
    back = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(back)
    tab.keyboard.press("t")
    after = tab.evaluate(back)
    assert {before, after} == {"rgb(15, 20, 27)", "rgb(245, 247, 250)"}
    tab.reload()
    assert tab.evaluate(back) == after


def test_keys_lead_to_pages_and_help(live, tab):
    tab.goto(live.url)
    tab.keyboard.press("?")
    assert tab.is_visible("#help")
    tab.keyboard.press("Escape")
    tab.keyboard.press("e")
    tab.wait_for_url("**/events")
    tab.keyboard.press("c")
    tab.wait_for_url("**/cost")
    assert tab.get_attribute("nav a[href='/cost']", "aria-current") == "page"


def test_charts_are_drawn(live, tab):
    tab.goto(live.url)
    tab.wait_for_selector("#chart-backlog canvas")
    tab.wait_for_selector("#chart-rates canvas")
