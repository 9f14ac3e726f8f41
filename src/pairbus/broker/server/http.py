"""A small HTTP/1.1 server side: the administration and control APIs of a broker.

It knows just what these need: keep-alive, Content-Length and chunked bodies, `Expect:
100-continue`, limits on every size, and a time-out for a request that never ends. One request at a
time per connection: what a client pipelines waits in the buffer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

_log = logging.getLogger("pairbus.broker.http")

MAX_HEAD = 64 * 1024
MAX_BODY = 1024 * 1024
MAX_CHUNK_HEAD = 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are in lower case; `target` is as it was sent, still quoted."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]
#: Takes a connection over after an upgrade; returns False if it does not want it.
Upgrade = Callable[[Request, asyncio.Transport, bytes], bool]


class BadRequest(Exception):  # noqa: N818 (named after the answer it leads to)
    """A request that cannot be read, and the status that says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpProtocol(asyncio.Protocol):
    """Serves HTTP/1.1 on one connection.

    Args:
        handler: Answers a request.
        upgrade: May take the connection over for a request with an `Upgrade` header.
        idle_timeout: Seconds that a request may take to arrive, or the next one to begin.
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
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._peer = ""
        self._continued = False
        self._upgraded = False
        self._is_paused = False
        self._needed = 0  # bytes without which the request cannot be complete
        self._searched = 0  # where the end of its head may begin
        self._chunks: _Chunks | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a request that nobody waits for any more."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if not self._upgraded:
            self._closed()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and act on a request that is complete."""
        self._buffer += data
        if self._task is None and not self._is_paused:
            if len(self._buffer) >= self._needed:
                self._advance()
        elif len(self._buffer) > MAX_HEAD + MAX_BODY:
            self._close()

    def pause_writing(self) -> None:
        """The client does not read: its next requests wait."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_paused = False
        if self._task is None:
            self._advance()

    def _advance(self) -> None:
        if self._is_paused:
            return
        try:
            request = self._parse()
        except BadRequest as bad:
            self._write(Response(bad.status, str(bad).encode()), keep_alive=False)
            return
        if request is None or self._transport is None:
            return
        if "upgrade" in request.headers and self._upgrade is not None:
            rest = bytes(self._buffer)
            self._upgraded = True
            if self._timer is not None:
                self._timer.cancel()
            if self._upgrade(request, self._transport, rest):
                return
            self._upgraded = False
        if self._timer is not None:
            self._timer.cancel()
        self._task = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._handler(request)
        except asyncio.CancelledError:
            raise
        except ConnectionAbortedError:  # a fault that was asked for
            if self._transport is not None:
                self._transport.abort()
            return
        except Exception:  # noqa: BLE001 (one bad request must not end the broker)
            _log.exception("%s %s failed", request.method, request.target.partition("?")[0])
            response = Response(500, b"internal error")
        keep_alive = request.headers.get("connection", "").lower() != "close"
        self._task = None
        self._write(response, keep_alive=keep_alive, head=request.method == "HEAD")
        if self._transport is not None and keep_alive:
            self._arm()
            self._advance()

    def _parse(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n", self._searched)
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequest(431, "the header is too large")
            self._searched = max(0, len(self._buffer) - 3)
            return None
        self._searched = end
        if end > MAX_HEAD:
            raise BadRequest(431, "the header is too large")
        method, target, headers = _parse_head(bytes(self._buffer[:end]))
        if headers.get("expect", "").lower() == "100-continue" and not self._continued:
            self._continued = True
            if self._transport is not None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        start = end + 4
        if "chunked" in headers.get("transfer-encoding", "").lower():
            if self._chunks is None:
                self._chunks = _Chunks(start)
            if not self._chunks.read(self._buffer):
                if len(self._buffer) - start > 2 * MAX_BODY:
                    raise BadRequest(413, "the body is too large")
                self._needed = len(self._buffer) + 1
                return None
            body, used = bytes(self._chunks.body), self._chunks.position
        else:
            used = start + _content_length(headers)
            if len(self._buffer) < used:
                self._needed = used
                return None
            body = bytes(self._buffer[start:used])
        del self._buffer[:used]
        self._continued = False
        self._needed = self._searched = 0
        self._chunks = None
        return Request(method, target, headers, body, self._peer)

    def _write(self, response: Response, *, keep_alive: bool, head: bool = False) -> None:
        if self._transport is None:
            return
        try:
            phrase = HTTPStatus(response.status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = [f"HTTP/1.1 {response.status} {phrase}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        if response.status != 204:
            lines.append(f"Content-Length: {len(response.body)}")
        lines.append(f"Connection: {'keep-alive' if keep_alive else 'close'}")
        body = b"" if head or response.status == 204 else response.body
        self._transport.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        if not keep_alive:
            self._transport.close()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._idle_timeout, self._close)

    def _close(self) -> None:
        if self._transport is None:
            return
        if self._is_paused:
            self._transport.abort()  # what it was told it does not read
        else:
            self._transport.close()


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[0].isalpha():
        raise BadRequest(400, "this is no HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400, "a header line cannot be read")
        headers[name.lower()] = value.strip()
    return parts[0].upper(), parts[1], headers


def _content_length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "0")
    if not text.isdigit():
        raise BadRequest(400, "the content length cannot be read")
    length = int(text)
    if length > MAX_BODY:
        raise BadRequest(413, "the body is too large")
    return length


class _Chunks:
    """A body in chunks, read on from where it was left: each byte is looked at once."""

    def __init__(self, start: int) -> None:
        self.body = bytearray()
        self.position = start
        self._in_trailer = False

    def read(self, buffer: bytearray) -> bool:
        """Read what there is; return whether the body is complete."""
        while not self._in_trailer:
            end = buffer.find(b"\r\n", self.position, self.position + MAX_CHUNK_HEAD)
            if end < 0:
                if len(buffer) > self.position + MAX_CHUNK_HEAD:
                    raise BadRequest(400, "a chunk size cannot be read")
                return False
            size_text = bytes(buffer[self.position : end]).partition(b";")[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError:
                raise BadRequest(400, "a chunk size cannot be read") from None
            if size < 0 or len(self.body) + size > MAX_BODY:
                raise BadRequest(413, "the body is too large")
            if size == 0:
                self.position = end + 2
                self._in_trailer = True
            elif len(buffer) < end + 2 + size + 2:
                return False
            else:
                self.body += buffer[end + 2 : end + 2 + size]
                self.position = end + 2 + size + 2
        final = buffer.find(b"\r\n", self.position)  # no trailers are expected, but allowed
        while final >= 0:
            is_last = final == self.position
            self.position = final + 2
            if is_last:
                return True
            final = buffer.find(b"\r\n", self.position)
        return False
