"""Access control in front of every route: without a token, with a wrong one, with the right one."""

import asyncio
import logging
import shutil
import urllib.error
import urllib.request

import pytest
from starlette.routing import Mount, Route

from pairbus.dashboard.app import create_app
from pairbus.dashboard.guard import COOKIE, Guard, is_loopback
from pairbus.dashboard.serve import serving
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.monitor import PairMonitor

from .conftest import entity

TOKEN = "open-sesame"
BEARER = {"authorization": f"Bearer {TOKEN}"}
WRONG = [
    ("", {}),
    ("?token=", {}),
    ("?token=wrong-token", {}),
    (f"?token={TOKEN}&token=wrong-token", {}),
    (f"?token=wrong-token&token={TOKEN}", {}),
    (f"?TOKEN={TOKEN}", {}),
    ("?page=overview&token=x", {}),
    ("", {"authorization": "Bearer wrong-token"}),
    ("", {"authorization": f"Basic {TOKEN}"}),
    ("", {"cookie": f"{COOKIE}={TOKEN}"}),
    ("?token=wrong-token", {"host": "evil.example"}),
    ("", {"host": "evil.example"}),
]


def every_route(app) -> list[tuple[str, str]]:
    """Method and path of all that the application answers, and of a path that it does not."""
    found = [("GET", "/no-such-page"), ("POST", "/no-such-page")]
    for route in app.routes:
        if isinstance(route, Mount):
            found.append(("GET", f"{route.path}/page.css"))
        else:
            assert isinstance(route, Route)  # another kind of route needs its own walk
            path = route.path.replace("{syphon}", "s1")
            found += [(method, path) for method in sorted(route.methods or ())]
    assert len(found) > 15
    return found


async def ask(app, method: str, target: str, headers=None) -> tuple[int, dict[str, str]]:
    """Status and headers of one answer; a stream is left when it begins."""
    started: asyncio.Future = asyncio.get_running_loop().create_future()

    async def send(message):
        if message["type"] == "http.response.start" and not started.done():
            fields = {key.decode(): value.decode() for key, value in message["headers"]}
            started.set_result((message["status"], fields))

    async def receive():
        return await asyncio.Event().wait()

    path, _, query = target.partition("?")
    given = {"host": "pair.example:8666", **(headers or {})}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "scheme": "http", "http_version": "1.1",
        "headers": [(key.encode(), value.encode()) for key, value in given.items()],
        "asgi": {"version": "3.0", "spec_version": "2.4"}, "root_path": "",
        "server": ("10.0.0.1", 8666), "client": ("10.0.0.9", 1),
    }  # fmt: skip
    task = asyncio.create_task(app(scope, receive, send))
    try:
        return await asyncio.wait_for(started, 5)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def app(scene):
    scene.client(entity("orders", "failed_over"))
    scene.syphon()
    monitor = PairMonitor(Pair(explicit_namespace="contoso", ledger=str(scene.ledger)))
    monitor.refresh()
    return create_app(monitor, Guard("0.0.0.0", token=TOKEN))


@pytest.mark.parametrize(("query", "headers"), WRONG)
async def test_no_route_opens_without_the_right_token(app, scene, query, headers):
    for method, path in every_route(app):
        status, _ = await ask(app, method, path + query, headers)
        assert status in {401, 403}, (method, path)
    assert not (scene.checkpoint / "control.json").exists()


async def test_every_route_opens_with_the_right_token(app):
    for method, path in every_route(app):
        status, _ = await ask(app, method, path, BEARER)
        assert status == (404 if path == "/no-such-page" else 200), (method, path)


async def test_every_link_with_the_token_is_redirected_to_one_without_it(app):
    for method, path in every_route(app):
        status, headers = await ask(app, method, f"{path}?page=overview&token={TOKEN}")
        if method != "GET":  # a link is opened, never posted
            assert status == 403
            continue
        assert status == 303
        assert headers["location"] == f"{path}?page=overview"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert TOKEN not in str(headers)
        cookie = {"cookie": headers["set-cookie"].partition(";")[0]}
        assert (await ask(app, method, path, cookie))[0] in {200, 404}


async def test_link_with_the_token_does_not_lead_to_another_site(app):
    _, headers = await ask(app, "GET", f"//evil.example/?token={TOKEN}")
    assert headers["location"] == "/evil.example/"


async def test_socket_without_a_route_is_closed(app):
    sent: list[dict] = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    await app({"type": "websocket", "path": "/stream", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_token_is_in_no_log_line(scene, caplog):
    scene.client(entity("orders"))
    caplog.set_level(logging.DEBUG)
    pair = Pair(explicit_namespace="contoso", ledger=str(scene.ledger))
    with serving(pair, token=TOKEN) as page:
        logging.getLogger("uvicorn").setLevel(logging.DEBUG)
        with urllib.request.urlopen(page.link, timeout=20) as answer:
            assert TOKEN not in answer.url
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(page.link + "x", timeout=20)
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(page)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "127.0.0.2", "::1", "[::1]"])
def test_loopback_addresses_are_known_in_every_spelling(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "localhost.example", "example"])
def test_other_addresses_are_not_loopback(host):
    assert not is_loopback(host)


async def test_malformed_origin_is_refused(app):
    headers = {**BEARER, "origin": "http://[pair.example"}
    assert (await ask(app, "POST", "/syphons/s1/pause", headers))[0] == 403


async def test_action_on_a_ledger_that_is_gone_is_refused_with_the_reason(app, scene):
    shutil.rmtree(scene.ledger)
    assert (await ask(app, "POST", "/syphons/s1/pause", BEARER))[0] == 409
