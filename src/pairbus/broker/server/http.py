"""The HTTP/1.1 server of the administration and control APIs, with h11 as its parser.

h11 reads requests and writes answers; this module adds the limits: on the size of head and body, on
the time that a request may take to arrive, and on the bytes of pipelined requests. There is one
request at a time per connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import h11

_log = logging.getLogger("pairbus.broker.http")

MAX_HEAD = 64 * 1024
MAX_BODY = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are in lower case; `target` is as it was sent, still quoted."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]
Upgrade = Callable[[Request, asyncio.Transport, bytes], Response | bool]
"""Takes over a connection and returns True; False leaves the request to the handler, and a
`Response` refuses it. The bytes are those received after the request."""


class BadRequest(Exception):  # noqa: N818 (named after the answer it leads to)
    """A request that is refused before a handler sees it, and the status of the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpProtocol(asyncio.Protocol):
    """Serves HTTP/1.1 on one connection.

    Args:
        handler: Answers a request.
        upgrade: May take over the connection of a request with an `Upgrade` header.
        idle_timeout: Seconds that a request may take to arrive, or the next one to begin.
        closed: Called when the connection is lost, unless it was upgraded.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        upgrade: Upgrade | None = None,
        idle_timeout: float = 60.0,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._handler = handler
        self._upgrade = upgrade
        self._idle_timeout = idle_timeout
        self._closed = closed
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._waiting = bytearray()  # received while a request is being answered
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_upgraded = False
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request that is being answered."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if not self._is_upgraded:
            self._closed()

    def data_received(self, data: bytes) -> None:
        """Buffer the bytes, and answer a complete request."""
        self._waiting += data
        if self._task is None and not self._is_paused:
            self._advance()
        elif len(self._waiting) > MAX_HEAD + MAX_BODY:
            self._close()

    def pause_writing(self) -> None:
        """Stop answering requests while the client does not read."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Answer the requests that arrived in the meantime."""
        self._is_paused = False
        if self._task is None:
            self._advance()

    # -- reading ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self._is_paused or self._transport is None or self._transport.is_closing():
            return
        try:
            request = self._read()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, "this is not a valid HTTP/1.1 request")
            return
        except BadRequest as error:
            self._refuse(error.status, str(error))
            return
        if request is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if "upgrade" in request.headers and self._upgrade is not None:
            rest = self._http.trailing_data[0] + bytes(self._waiting)
            self._is_upgraded = True  # the connection may be lost within the call
            taken = self._upgrade(request, self._transport, rest)
            if taken is True:
                return
            self._is_upgraded = False
            if isinstance(taken, Response):
                self._refuse(taken.status, taken.body.decode(), taken.headers)
                return
        self._task = asyncio.get_running_loop().create_task(self._answer(request))

    def _read(self) -> Request | None:
        """Return the next request, or None while it is incomplete."""
        if self._waiting:
            self._http.receive_data(bytes(self._waiting))
            self._waiting.clear()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=100, headers=[]))
                return None
            if isinstance(event, h11.Request):
                _check_head(event)
                self._head = event
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > MAX_BODY:
                    raise BadRequest(413, "the body is too large")
            elif isinstance(event, h11.EndOfMessage) and self._head is not None:
                request = Request(
                    self._head.method.decode().upper(),
                    self._head.target.decode("latin-1"),
                    _join_headers(self._head),
                    bytes(self._body),
                )
                self._head = None
                self._body.clear()
                return request
            else:
                return None

    # -- answering -------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._handler(request)
        except asyncio.CancelledError:
            raise
        except ConnectionAbortedError:  # an injected fault
            if self._transport is not None:
                self._transport.abort()
            return
        except Exception:  # noqa: BLE001 (an error ends this request only)
            _log.exception("%s %s failed", request.method, request.target.partition("?")[0])
            response = Response(500, b"internal error")
        self._task = None
        if self._transport is None:
            return
        self._write(response, is_head=request.method == "HEAD")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._arm()
            self._advance()
        else:  # the client requested it, or uses HTTP/1.0
            self._transport.close()

    def _refuse(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        """Answer with an error and close, because the start of the next request is uncertain."""
        if self._transport is None:
            return
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = reason.encode()
            self._write(Response(status, body, {**(headers or {}), "Connection": "close"}))
        self._transport.close()

    def _write(self, response: Response, *, is_head: bool = False) -> None:
        headers = list(response.headers.items())
        body = b"" if response.status == 204 else response.body
        if response.status != 204:
            headers.append(("Content-Length", str(len(body))))
        self._send(
            h11.Response(
                status_code=response.status,
                headers=[(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers],
                reason=HTTPStatus(response.status).phrase,
            )
        )
        if body and not is_head:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._transport is not None:
            self._transport.write(data)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._idle_timeout, self._close)

    def _close(self) -> None:
        if self._transport is None:
            return
        if self._is_paused:
            self._transport.abort()  # the client does not read the answer
        else:
            self._transport.close()


def _check_head(head: h11.Request) -> None:
    """Refuse a request that h11 accepts and this server does not.

    A request with both Content-Length and Transfer-Encoding may be accepted (RFC 9112, section
    6.3), but a proxy in front may use the other one, so an attacker could hide a request in it.
    """
    if not head.http_version.startswith(b"1."):
        raise BadRequest(505, "only HTTP/1.1 is supported")
    # h11 limits the size of an incomplete head only, not of one that arrives in one piece.
    if sum(len(name) + len(value) + 4 for name, value in head.headers) > MAX_HEAD:
        raise BadRequest(431, "the header is too large")
    values = dict(head.headers)
    length = values.get(b"content-length")
    if length is not None and b"transfer-encoding" in values:
        raise BadRequest(400, "a request has either Content-Length or Transfer-Encoding")
    if length is not None and int(length) > MAX_BODY:
        raise BadRequest(413, "the body is too large")


def _join_headers(head: h11.Request) -> dict[str, str]:
    """Return the headers by name; repeated ones are joined (RFC 9110, section 5.3)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
