"""Who may see the page and press its buttons.

On a loopback address everyone on the machine may look, and a button needs the token that the
command printed. On any other address looking needs it too. The token comes as `Authorization:
Bearer`, or once in the link `/?token=…`, which trades it for a cookie that scripts cannot read and
other sites cannot send.

Two attacks are kept out besides: a page of another site that posts here (an action needs the
page's own CSRF token in a header, and an `Origin` that is ours), and a foreign name that was made
to resolve to this address (DNS rebinding: the `Host` must be one of ours).
"""

import hashlib
import hmac
import ipaddress
import secrets
from urllib.parse import urlsplit

from starlette.requests import Request

COOKIE = "pairbus-session"
CSRF_HEADER = "x-pairbus-csrf"


def is_loopback(host: str) -> bool:
    """Whether a bind address is reachable from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """The rules for one server.

    Args:
        bind: the address that the server listens on.
        token: what the user must know; a random one if none is given.
        hosts: names that the page is also reached by, such as that of a proxy.
    """

    def __init__(
        self, bind: str = "127.0.0.1", token: str | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        self.is_open = is_loopback(bind)
        if not self.is_open and not token:
            raise ValueError(f"to listen on {bind}, a token is needed")
        if token is not None and len(token) < 8:
            raise ValueError("a token needs at least 8 characters")
        self.token = token or secrets.token_urlsafe(24)
        self._hosts = {host.lower() for host in hosts}
        if self.is_open:
            self._hosts |= {"127.0.0.1", "localhost", "[::1]", "::1", bind.lower()}
        elif bind not in {"0.0.0.0", "::", "[::]"}:
            self._hosts.add(bind.lower())

    def __repr__(self) -> str:
        return f"<Guard {'loopback' if self.is_open else 'token'}>"

    # What the browser holds is derived from the token, so that it never leaves in a cookie.

    @property
    def session(self) -> str:
        """The cookie's value."""
        return self._derive("session")

    @property
    def csrf(self) -> str:
        """What the page sends along with an action."""
        return self._derive("csrf")

    def _derive(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()

    def is_known_host(self, request: Request) -> bool:
        """Whether the request was meant for us, and not for a name that was bent to our address."""
        host = host_name(request.headers.get("host", ""))
        if host in self._hosts:
            return True
        # Bound to every address we cannot know our names; the cookie's own host protects there.
        return not self.is_open and not self._hosts

    def is_known_origin(self, request: Request) -> bool:
        """Whether a browser sent the request from our own page (or no browser sent it)."""
        origin = request.headers.get("origin")
        if origin is None:
            return request.headers.get("sec-fetch-site") in {None, "same-origin"}
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()

    def has_token(self, request: Request) -> bool:
        """Whether the request carries the token, or the cookie that it was traded for."""
        return self.has_bearer(request) or same(request.cookies.get(COOKIE, ""), self.session)

    def has_bearer(self, request: Request) -> bool:
        """Whether the request carries the token itself, as programs send it."""
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and same(value.strip(), self.token)

    def may_look(self, request: Request) -> bool:
        """Whether the request may read."""
        return self.is_open or self.has_token(request)

    def may_act(self, request: Request) -> str | None:
        """None if the request may press a button, else why not."""
        if not self.has_token(request):
            return "an action needs the token: open the link that `pairbus dashboard` printed"
        if not self.is_known_origin(request):
            return "the request comes from another site"
        if not self.has_bearer(request) and not same(
            request.headers.get(CSRF_HEADER, ""), self.csrf
        ):
            return "the request does not come from the page itself"
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def same(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
