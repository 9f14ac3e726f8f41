"""Access control of the live page.

On a loopback address everyone on the machine may read, and a button needs the token that the
command printed. On any other address reading needs it too. A program sends the token as
`Authorization: Bearer`. A person opens the link `/?token=…` once: the answer sets a cookie, which
scripts cannot read and other sites cannot send, and redirects to the same address without the
token, so that it stays out of the browser's history and of referrers.

`AccessControl` wraps the whole application: no route can be reached around it, and the token in a
query is checked there and nowhere else. Two more attacks are prevented: a page of another site
that posts here (an action needs the page's CSRF token in a header and an `Origin` that is ours),
and a foreign name that resolves to this address (DNS rebinding: `Host` must be one of ours).
"""

import hashlib
import hmac
import ipaddress
import secrets
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairbus.names import split_host

COOKIE = "pairbus-session"
CSRF_HEADER = "x-pairbus-csrf"
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src 'self' "
    "'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether a bind address is reachable from this machine alone."""
    try:
        name, _ = split_host(host)
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """The rules for one server.

    Args:
        bind: the address that the server listens on.
        token: the token of the user; a random one if none is given.
        hosts: names that the page is also reached by, such as that of a proxy.
    """

    def __init__(
        self, bind: str = "127.0.0.1", token: str | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        self.is_open = is_loopback(bind)
        if not self.is_open and not token:
            raise ValueError(
                f"a token is needed to listen on {bind}: --token, PAIRBUS_DASHBOARD_TOKEN"
            )
        if token is not None and len(token) < 8:
            raise ValueError("a token needs at least 8 characters")
        self.token = token or secrets.token_urlsafe(24)
        self._hosts = {split_host(host)[0] for host in hosts}
        bound, _ = split_host(bind)
        if self.is_open:
            self._hosts |= {"127.0.0.1", "localhost", "::1", bound}
        elif bound not in {"0.0.0.0", "::"}:
            self._hosts.add(bound)

    def __repr__(self) -> str:
        return f"<Guard {'loopback' if self.is_open else 'token'}>"

    # The cookie is derived from the token, so that the token itself is never in a cookie.

    @property
    def session(self) -> str:
        """The cookie's value."""
        return self._derive("session")

    @property
    def csrf(self) -> str:
        """The CSRF token that the page sends with an action."""
        return self._derive("csrf")

    def _derive(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()

    def is_known_host(self, request: Request) -> bool:
        """Whether the request names one of our hosts, not a foreign name with our address."""
        try:
            host, _ = split_host(request.headers.get("host", ""))
        except ValueError:
            host = ""
        if host in self._hosts:
            return True
        # If the server is bound to all addresses, its names are not known. A browser sends the
        # cookie only to the host that set it.
        return not self.is_open and not self._hosts

    def is_known_origin(self, request: Request) -> bool:
        """Whether a browser sent the request from our own page (or no browser sent it)."""
        origin = request.headers.get("origin")
        if origin is None:
            return request.headers.get("sec-fetch-site") in {None, "same-origin"}
        return origin.partition("://")[2].lower() == request.headers.get("host", "").lower()

    def has_token(self, request: Request) -> bool:
        """Whether the request carries the token, or the cookie that `sign_in` gave for it."""
        return self.has_bearer(request) or same(request.cookies.get(COOKIE, ""), self.session)

    def has_bearer(self, request: Request) -> bool:
        """Whether the request carries the token itself, as programs send it."""
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and same(value.strip(), self.token)

    def may_read(self, request: Request) -> bool:
        """Whether the request may read."""
        return self.is_open or self.has_token(request)

    def refuse(self, request: Request) -> Response | None:
        """None if the request may reach a route, else the answer it gets instead."""
        if not self.is_known_host(request):
            return PlainTextResponse("this is not a name of this page\n", 421)
        if "token" in request.query_params:
            return self.sign_in(request)
        if not self.may_read(request):
            return PlainTextResponse(
                "open the link that `pairbus dashboard` printed, or send the token as a bearer\n",
                401,
                {"www-authenticate": "Bearer"},
            )
        return None

    def sign_in(self, request: Request) -> Response:
        """Exchange the token of a link for the cookie, and redirect to the link without it."""
        no_store = {"cache-control": "no-store"}
        given = request.query_params.getlist("token")
        if request.method != "GET" or not all(same(value, self.token) for value in given):
            return PlainTextResponse(
                "this token is not the one of this page: open the whole link that was printed\n",
                403,
                no_store,
            )
        rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
        # One slash in front: "//host/" would be the address of another site.
        target = "/" + request.url.path.lstrip("/") + (f"?{urlencode(rest)}" if rest else "")
        response = RedirectResponse(target, 303, no_store)
        response.set_cookie(
            COOKIE,
            self.session,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
            path="/",
        )
        return response

    def may_act(self, request: Request) -> str | None:
        """None if the request may perform an action, else the reason why not."""
        if not self.has_token(request):
            return "an action needs the token: open the link that `pairbus dashboard` printed"
        if not self.is_known_origin(request):
            return "the request comes from another site"
        if not self.has_bearer(request) and not same(
            request.headers.get(CSRF_HEADER, ""), self.csrf
        ):
            return "the request does not come from the page itself"
        return None


class AccessControl:
    """The middleware in front of every route: asks the guard, and adds the security headers."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app = app
        self.guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or answer it here."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page has no WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [
                    (name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
                ]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        handler = self.guard.refuse(Request(scope)) or self.app
        await handler(scope, receive, send_with_headers)


def same(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
