"""The live page's routes. Every page has a `.json` twin; every number is from the monitor."""

import asyncio
import contextlib
import datetime as dt
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pairbus import __version__
from pairbus.dashboard.guard import AccessControl, Guard
from pairbus.ledger.store import LedgerError
from pairbus.monitoring import metrics
from pairbus.monitoring.formatting import brief, duration, one_line, to_plain
from pairbus.monitoring.monitor import PairMonitor
from pairbus.monitoring.records import Snapshot
from pairbus.monitoring.timeline import age
from pairbus.pricing import format_amount, format_size
from pairbus.status import parse_time

STATIC = Path(__file__).parent / "static"
# The sections of each page that the stream replaces: ids in the templates.
PAGES = {
    "overview": ["banner", "cards", "entities", "backlog", "syphon", "brokers", "timeline"],
    "events": ["banner", "events"],
    "cost": ["banner", "cost"],
}
KEEP_ALIVE = 15.0


def create_app(monitor: PairMonitor, guard: Guard) -> Starlette:
    """Build the live page of one monitor; `guard` decides on every request before any route."""
    env = Environment(
        loader=PackageLoader("pairbus.dashboard"),
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        brief=brief,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
        ago=lambda value: duration(age(value, dt.datetime.now(dt.UTC))),
        clock=clock,
        duration=duration,
        money=format_amount,
        number=lambda value: "–" if value is None else f"{value:,.0f}",
        rate=lambda value: "–" if value is None else f"{value:,.1f}",
        size=format_size,
    )
    stopping = asyncio.Event()

    def context(page: str, request: Request) -> dict[str, Any]:
        can_act = guard.has_token(request)
        return {
            "s": monitor.snapshot,
            "page": page,
            "entity": request.query_params.get("entity", ""),
            "version": __version__,
            "can_act": can_act,
            "csrf": guard.csrf if can_act else "",
        }

    def show(page: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            html = env.get_template(f"{page}.html").render(
                context(page, request), history=monitor.history()
            )
            return HTMLResponse(html, headers={"cache-control": "no-store"})

        return endpoint

    def give(read: Callable[[Snapshot], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(_request: Request) -> Response:
            return answer(read(monitor.snapshot))

        return endpoint

    async def show_metrics(_request: Request) -> Response:
        text = metrics.render(monitor.snapshot)
        return PlainTextResponse(text, headers={"content-type": metrics.CONTENT_TYPE})

    async def stream(request: Request) -> Response:
        page = request.query_params.get("page", "")
        if page and page not in PAGES:
            return answer({"error": f"no page is called {page!r}"}, 404)
        return StreamingResponse(
            follow(request, page),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def follow(request: Request, page: str) -> AsyncIterator[str]:
        """Yield server-sent events: the sections of a page that changed, or the whole snapshot."""
        shown: dict[str, str] = {}
        with monitor.watch() as news:
            while not stopping.is_set():
                news.clear()  # before the snapshot is read: sending it may take long
                if page:
                    module = env.get_template("sections.html").make_module(context(page, request))
                    fresh = {name: str(getattr(module, name)()) for name in PAGES[page]}
                    changed = {
                        name: fresh[name] for name in fresh if fresh[name] != shown.get(name)
                    }
                    shown = fresh
                    samples = monitor.history()[-1:]
                    data: Any = {"sections": changed, "samples": samples}
                else:
                    data = monitor.snapshot
                yield f"id: {monitor.number}\ndata: {dump(data)}\n\n"
                while not news.is_set() and not stopping.is_set():
                    try:
                        await asyncio.wait_for(news.wait(), KEEP_ALIVE)
                    except TimeoutError:
                        yield ": still here\n\n"

    def act(paused: bool) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if (refusal := guard.may_act(request)) is not None:
                return answer({"error": refusal}, 403)
            syphon = request.path_params["syphon"]
            try:
                await asyncio.to_thread(monitor.set_paused, syphon, paused=paused)
            except KeyError:
                return answer({"error": f"no syphon is called {syphon!r}"}, 404)
            except (OSError, LedgerError) as exc:
                return answer({"error": one_line(exc)}, 409)
            return answer({"syphon": syphon, "paused": paused})

        return endpoint

    async def not_found(request: Request, exc: Exception) -> Response:
        if request.url.path.endswith(".json"):
            return answer({"error": f"no page is called {request.url.path!r}"}, 404)
        html = env.get_template("not_found.html").render(
            context("", request), path=request.url.path
        )
        return HTMLResponse(html, 404, {"cache-control": "no-store"})

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        monitor.start()
        try:
            yield
        finally:
            await asyncio.to_thread(monitor.close)

    def stop() -> None:
        """End the streams, so that the server can shut down."""
        stopping.set()
        monitor.wake()

    app = Starlette(
        routes=[
            Route("/", show("overview")),
            Route("/index.json", give(lambda s: s)),
            Route("/events", show("events")),
            Route("/events.json", give(lambda s: {"at": s.at, "events": s.events})),
            Route("/cost", show("cost")),
            Route("/cost.json", give(lambda s: {"at": s.at, "money": s.money})),
            Route("/history.json", give(lambda _: monitor.history())),
            Route("/stream", stream),
            Route("/metrics", show_metrics),
            Route("/syphons/{syphon}/pause", act(paused=True), methods=["POST"]),
            Route("/syphons/{syphon}/resume", act(paused=False), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={404: not_found},
        middleware=[Middleware(AccessControl, guard=guard)],
        lifespan=lifespan,
    )
    app.state.stop = stop
    return app


def answer(data: Any, status: int = 200) -> JSONResponse:
    """Return data as JSON, never cached."""
    return JSONResponse(to_plain(data), status, {"cache-control": "no-store"})


def dump(data: Any) -> str:
    """Return data as JSON in one line."""
    return json.dumps(to_plain(data), ensure_ascii=False, separators=(",", ":"))


def clock(value: Any) -> str:
    """A time of day in UTC; with its date if that is not today."""
    parsed = parse_time(value)
    if parsed is None:
        return "–"
    parsed = parsed.astimezone(dt.UTC)
    today = dt.datetime.now(dt.UTC).date()
    return parsed.strftime("%H:%M:%S" if parsed.date() == today else "%Y-%m-%d %H:%M:%S")
