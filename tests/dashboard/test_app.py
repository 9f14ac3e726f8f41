"""The routes: pages, twins, stream, and who may do what."""

import asyncio
import json
import os
import socket

import httpx
import pytest

from pairbus.dashboard.app import create_app
from pairbus.dashboard.guard import Guard
from pairbus.ledger.writer import LedgerWriter
from pairbus.monitoring import metrics
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.monitor import PairMonitor
from pairbus.runtime.processes import machine_id
from pairbus.syphon.records import Control
from pairbus.syphon.state import StateDirectory

from .conftest import entity

BASE = "http://127.0.0.1:8666"


def connect(scene, guard, **options):
    monitor = PairMonitor(Pair(explicit_namespace="contoso", ledger=str(scene.ledger)), **options)
    monitor.refresh()
    app = create_app(monitor, guard)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE)
    return monitor, client, app


@pytest.fixture
def page(scene):
    scene.client(entity("orders", "failed_over"), entity("<script>alert(1)</script>"))
    scene.syphon()
    return connect(scene, Guard(token="open-sesame"))


async def sign_in(client):
    answer = await client.get("/?token=open-sesame")
    assert answer.status_code == 303
    return answer


@pytest.mark.parametrize("path", ["/", "/events", "/cost"])
async def test_every_page_has_a_json_twin(page, path):
    _, client, _ = page
    html = await client.get(path)
    assert html.status_code == 200
    twin = await client.get("/index.json" if path == "/" else path + ".json")
    assert twin.json()["at"]
    assert f'href="{twin.url.path}"' in html.text


async def test_page_gives_the_reason_why_a_killed_syphon_is_silent(scene):
    host, machine = socket.gethostname(), machine_id()
    scene.syphon(host=host, machine=machine, process_started="1", pid=os.getpid())
    _, client, _ = connect(scene, Guard(token="open-sesame"))
    assert "Its process does not exist any more" in (await client.get("/")).text


async def test_page_shows_the_outage_and_escapes_what_others_wrote(page):
    _, client, _ = page
    text = (await client.get("/")).text
    assert 'data-entity="orders" data-phase="failed_over"' in text
    assert "connection refused" in text
    assert "<script>alert" not in text


async def test_page_shows_a_fence_that_nobody_answers(scene):
    drain = {"is_overdue": True, "waits_for": ["contoso/x-servicebus-transfer/3"]}
    scene.client(entity("orders", "draining", drain=drain))
    _, client, _ = connect(scene, Guard())
    text = (await client.get("/")).text
    assert 'data-entity="orders" data-phase="draining"' in text
    assert "fence not answered" in text


async def test_page_says_which_namespace_throttles_and_what_it_allows(scene):
    scene.syphon(allowed_rate=213.7, throttled_by="primary")
    _, client, _ = connect(scene, Guard())
    text = (await client.get("/")).text
    assert "Throttled by the primary, which allows about 214/s" in text


async def test_a_drain_of_unknown_length_has_no_progress_bar(scene):
    scene.syphon(remaining=None)
    _, client, _ = connect(scene, Guard())
    assert "<progress" not in (await client.get("/")).text
    scene.syphon(remaining=300)
    _, client, _ = connect(scene, Guard())
    assert "<progress" in (await client.get("/")).text


async def test_unknown_address_is_a_page_with_the_way_back(page):
    _, client, _ = page
    answer = await client.get("/nowhere")
    assert answer.status_code == 404
    assert "There is no page /nowhere" in answer.text
    assert 'href="/events"' in answer.text
    assert (await client.get("/nowhere.json")).json() == {
        "error": "no page is called '/nowhere.json'"
    }


async def test_events_are_filtered_by_entity(scene):
    events = [
        {"event": "FailedOver", "at": "2026-01-01T00:00:00+00:00", "entity": name, "reason": "r"}
        for name in ("orders", "bills")
    ]
    scene.client(entity("orders"), entity("bills"), events=events)
    _, client, _ = connect(scene, Guard())
    assert (await client.get("/events")).text.count('data-event="FailedOver"') == 2
    only = (await client.get("/events?entity=orders")).text
    assert only.count('data-event="FailedOver"') == 1
    assert "Events of" in only


async def test_disabled_button_says_why(page):
    _, client, _ = page
    assert 'disabled title="Open the link' in (await client.get("/")).text
    await sign_in(client)
    assert "disabled" not in (await client.get("/")).text


async def test_nothing_on_a_page_comes_from_another_host(page):
    _, client, _ = page
    for path in ("/", "/events", "/cost", "/static/page.css", "/static/page.js"):
        text = (await client.get(path)).text.replace("http://www.w3.org", "")
        assert "//" not in text.replace("// ", "").replace(BASE, "").replace("/ /", "")


async def test_metrics_are_served_for_prometheus(page):
    monitor, client, _ = page
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'pairbus_failed_over{entity="orders",pair="default"} 1' in answer.text
    assert answer.text == metrics.render(monitor.snapshot)


async def test_money_comes_from_the_operations_in_the_ledger(scene):
    writer = LedgerWriter(str(scene.ledger), client_id="c")
    writer.count(
        "contoso", "orders", "send_primary", "send", messages=1000, size=1000, billable=1000
    )
    writer.count("contoso", "orders", "ping", "send", messages=1, size=10, billable=1)
    writer.close()
    _, client, _ = connect(scene, Guard())
    money = (await client.get("/cost.json")).json()["money"]
    assert money["operations"] == 1001
    assert float(money["total"]) == pytest.approx(1001 * 0.80 / 1e6, rel=0.01)
    assert [row["stage"] for row in money["stages"]] == ["send_primary", "ping"]
    assert "send primary" in (await client.get("/cost")).text


async def test_answers_carry_the_security_headers(page):
    _, client, _ = page
    headers = (await client.get("/")).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


async def test_foreign_host_name_is_turned_away(page):
    _, client, _ = page
    answer = await client.get("/index.json", headers={"host": "evil.example:8666"})
    assert answer.status_code == 421


async def test_token_in_the_link_becomes_a_cookie_and_leaves_the_address(page):
    _, client, _ = page
    answer = await sign_in(client)
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "open-sesame" not in cookie
    assert "open-sesame" not in (await client.get("/")).text
    assert (await client.get("/?token=wrong-token")).status_code == 403


async def test_pause_writes_the_control_file_and_keeps_the_limits(page, scene):
    _, client, _ = page
    (scene.checkpoint / "control.json").write_text('{"max_messages_per_second": 50}')
    answer = await client.post("/syphons/s1/pause", headers={"authorization": "Bearer open-sesame"})
    assert answer.json() == {"syphon": "s1", "paused": True}
    expected = Control(paused=True, max_messages_per_second=50)
    assert StateDirectory(scene.checkpoint).control() == expected


async def test_page_may_act_with_its_csrf_token_and_its_own_origin(page, scene):
    _, client, _ = page
    await sign_in(client)
    csrf = Guard(token="open-sesame").csrf
    assert f'content="{csrf}"' in (await client.get("/")).text
    answer = await client.post(
        "/syphons/s1/resume", headers={"x-pairbus-csrf": csrf, "origin": BASE}
    )
    assert answer.status_code == 200
    assert (scene.checkpoint / "controls" / "paused.json").exists()
    assert not StateDirectory(scene.checkpoint).control().paused


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({}, "does not come from the page"),
        ({"x-pairbus-csrf": "wrong"}, "does not come from the page"),
        ({"x-pairbus-csrf": "right", "origin": "http://evil.example"}, "another site"),
        ({"x-pairbus-csrf": "right", "origin": "null"}, "another site"),
        ({"x-pairbus-csrf": "right", "sec-fetch-site": "cross-site"}, "another site"),
    ],
)
async def test_forged_action_is_refused_and_does_nothing(page, scene, headers, why):
    _, client, _ = page
    await sign_in(client)
    if headers.get("x-pairbus-csrf") == "right":
        headers = {**headers, "x-pairbus-csrf": Guard(token="open-sesame").csrf}
    answer = await client.post("/syphons/s1/pause", headers=headers)
    assert answer.status_code == 403
    assert why in answer.json()["error"]
    assert not (scene.checkpoint / "controls").exists()


async def test_action_without_the_token_is_refused_even_on_loopback(page, scene):
    _, client, _ = page
    answer = await client.post("/syphons/s1/pause", headers={"origin": BASE})
    assert answer.status_code == 403
    assert "needs the token" in answer.json()["error"]
    assert not (scene.checkpoint / "controls").exists()


async def test_unknown_syphon_and_lost_checkpoint_are_clear_answers(page, scene):
    _, client, _ = page
    bearer = {"authorization": "Bearer open-sesame"}
    assert (await client.post("/syphons/nope/pause", headers=bearer)).status_code == 404
    scene.syphon(checkpoint="/nowhere/at/all")
    answer = await client.post("/syphons/s1/pause", headers=bearer)
    assert answer.status_code == 409
    assert "not on this host" in answer.json()["error"]


async def test_other_address_needs_the_token_to_look(scene):
    scene.client(entity("orders"))
    guard = Guard("0.0.0.0", token="open-sesame")
    _, client, _ = connect(scene, guard)
    for path in ("/", "/index.json", "/metrics", "/stream", "/static/page.css"):
        assert (await client.get(path)).status_code == 401
    bearer = {"authorization": "Bearer open-sesame"}
    assert (await client.get("/index.json", headers=bearer)).status_code == 200
    await sign_in(client)
    assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("[::1]:8666", 200), ("::1", 200), ("LOCALHOST:8666", 200), ("evil.example", 421), ("", 421),
     ("127.0.0.1:x", 421)],
)  # fmt: skip
async def test_only_the_hosts_of_the_server_are_answered(scene, host, status):
    scene.client(entity("orders"))
    _, client, _ = connect(scene, Guard())
    answer = await client.get("/index.json", headers={"host": host})
    assert answer.status_code == status


def test_other_address_without_a_token_cannot_be_served():
    with pytest.raises(ValueError, match="a token is needed"):
        Guard("0.0.0.0")
    with pytest.raises(ValueError, match="8 characters"):
        Guard("10.0.0.1", token="short")


STREAM = {
    "type": "http", "method": "GET", "path": "/stream", "raw_path": b"/stream",
    "query_string": b"page=overview", "headers": [(b"host", b"127.0.0.1")], "scheme": "http",
    "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1",
    "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
}  # fmt: skip


async def test_stream_tells_a_change_that_comes_while_the_last_one_is_sent(page, scene):
    monitor, _, app = page
    received: list[str] = []
    both = asyncio.Event()

    async def send(message):
        if message["type"] == "http.response.body" and message["body"]:
            received.append(message["body"].decode())
            if len(received) == 1:
                scene.client(entity("orders"))
                await asyncio.to_thread(monitor.refresh)
            else:
                both.set()

    task = asyncio.create_task(app(STREAM, asyncio.Event().wait, send))
    await asyncio.wait_for(both.wait(), 10)
    assert (
        'data-phase="healthy"'
        in json.loads(received[1].split("data: ", 1)[1])["sections"]["entities"]
    )
    app.state.stop()
    await asyncio.wait_for(task, 60)


async def test_stream_tells_each_change_and_ends_with_the_server(page, scene):
    monitor, _, app = page
    received: list[str] = []
    got = asyncio.Event()

    async def send(message):
        if message["type"] == "http.response.body" and message["body"]:
            received.append(message["body"].decode())
            got.set()

    task = asyncio.create_task(app(STREAM, asyncio.Event().wait, send))
    await asyncio.wait_for(got.wait(), 60)
    first = json.loads(received[0].split("data: ", 1)[1])
    assert set(first["sections"]) >= {"banner", "entities", "syphon"}
    got.clear()
    scene.client(entity("orders"))
    await asyncio.to_thread(monitor.refresh)
    await asyncio.wait_for(got.wait(), 60)
    second = json.loads(received[-1].split("data: ", 1)[1])
    assert 'data-phase="healthy"' in second["sections"]["entities"]
    app.state.stop()
    await asyncio.wait_for(task, 60)


async def test_broken_status_file_hides_no_other(page, scene):
    monitor, client, _ = page
    (scene.ledger / "status" / "broken.json").write_text("{")
    (scene.ledger / "status" / "list.json").write_text("[1]")
    monitor.refresh()
    assert len((await client.get("/index.json")).json()["clients"]) == 1
