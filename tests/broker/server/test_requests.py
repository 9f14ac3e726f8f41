"""The HTTP side: packet boundaries never matter, and every size has its limit."""

import asyncio

import pytest

from pairbus.broker.server.http import MAX_BODY, HttpProtocol, Request, Response

PLAIN = b"PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\n"
)
REQUESTS = [
    PLAIN,
    CHUNKED + b"\r\n",
    CHUNKED + b"Trailer: x\r\nOther: y\r\n\r\n",
    b"GET /c HTTP/1.1\r\n\r\n",
]


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = self.is_aborted = False

    def write(self, data) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True


class Server:
    """One connection, and what was asked on it."""

    def __init__(self, answer: bytes = b"") -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.answer = answer
        self.transport = Transport()
        self.protocol = HttpProtocol(self._handle)
        self.protocol.connection_made(self.transport)

    async def _handle(self, request: Request) -> Response:
        self.asked.append((request.method, request.target, request.body))
        return Response(200, self.answer)

    async def say(self, *packets: bytes) -> None:
        for packet in packets:
            self.protocol.data_received(packet)
            for _ in range(3):
                await asyncio.sleep(0)


async def test_however_a_request_is_cut_it_is_read_the_same():
    expected = [("PUT", "/a", b"hello"), *[("PUT", "/b", b"hello")] * 2, ("GET", "/c", b"")]
    for request, meaning in zip(REQUESTS, expected, strict=True):
        for cut in range(1, len(request)):
            server = Server()
            await server.say(request[:cut], request[cut:])
            assert server.asked == [meaning]
    for size in (1, 2, 7, 1000):
        server = Server()
        stream = b"".join(REQUESTS) * 2
        await server.say(*(stream[n : n + size] for n in range(0, len(stream), size)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert server.asked == expected * 2
        assert server.transport.written.count(b"200 OK") == 8
        server.protocol.connection_lost(None)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000, b"400"),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", b"413"),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (MAX_BODY + 1), b"413"),
        (b"PUT / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1), b"413"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, b"431"),
    ],
)
async def test_what_is_too_large_is_answered_and_closed(request_, status):
    server = Server()
    await server.say(*(request_[n : n + 500] for n in range(0, len(request_), 500)))
    assert server.transport.written.startswith(b"HTTP/1.1 " + status)
    assert server.transport.is_closed
    assert server.asked == []


async def test_while_a_client_does_not_read_its_requests_wait():
    server = Server()
    server.protocol.pause_writing()
    await server.say(PLAIN, PLAIN)
    assert server.asked == []
    server.protocol.resume_writing()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(server.asked) == 2
    server.protocol.pause_writing()
    await server.say(*[b"x" * 100_000] * 12)
    assert server.transport.is_aborted
    server.protocol.connection_lost(None)
