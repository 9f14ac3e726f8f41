"""The HTTP side: packet boundaries never matter, and every size has its limit."""

import asyncio

import pytest

from pairbus.broker.server.http import MAX_BODY, HttpProtocol, Request, Response

PLAIN = b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\n"
)
REQUESTS = [
    PLAIN,
    CHUNKED + b"\r\n",
    CHUNKED + b"Trailer: x\r\nOther: y\r\n\r\n",
    b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n",
]


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = self.is_aborted = False
        self.closed = asyncio.Event()

    def write(self, data) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True
        self.closed.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True


class Server:
    """One connection, and what was asked on it."""

    def __init__(self, answer: bytes = b"", idle_timeout: float = 60.0) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.answer = answer
        self.transport = Transport()
        self.protocol = HttpProtocol(self._handle, idle_timeout=idle_timeout)
        self.protocol.connection_made(self.transport)

    async def _handle(self, request: Request) -> Response:
        self.headers = request.headers
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
    ("head", "body", "status"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n", b"400"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"5\r\nhello\r\n0\r\n\r\n", b"400"),
        (b"Content-Length: 5\r\nContent-Length: 6", b"hello!", b"400"),
        (b"Content-Length: 5, 6", b"hello!", b"400"),
        (b"Content-Length: +5", b"hello", b"400"),
        (b"Transfer-Encoding: xchunked", b"5\r\nhello\r\n0\r\n\r\n", b"501"),
        (b"Transfer-Encoding: gzip, chunked", b"5\r\nhello\r\n0\r\n\r\n", b"501"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"0\r\n\r\n", b"501"),
    ],
)
async def test_request_whose_length_is_ambiguous_is_refused(head, body, status):
    """Two servers that disagree on where a request ends can be made to see different requests."""
    server = Server()
    await server.say(b"PUT / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + body)
    assert server.asked == []
    assert server.transport.written.startswith(b"HTTP/1.1 " + status)
    assert server.transport.is_closed


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", b"505"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nName : x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", b"431"),
    ],
)
async def test_request_that_cannot_be_read_is_answered_and_closed(request_, status):
    server = Server()
    await server.say(request_)
    assert server.asked == []
    assert server.transport.written.startswith(b"HTTP/1.1 " + status)
    assert server.transport.is_closed


HEAD = b"PUT / HTTP/1.1\r\nHost: x\r\n"
CHUNKED_HEAD = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (CHUNKED_HEAD + b"1" * 70_000, b"431"),
        (CHUNKED_HEAD + b"-1\r\n", b"400"),
        (CHUNKED_HEAD + b"%x\r\n" % (MAX_BODY + 1) + b"x" * (MAX_BODY + 1), b"413"),
        (CHUNKED_HEAD + b"3e8\r\n%s\r\n" % (b"x" * 1000) * 1100, b"413"),
        (HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_BODY + 1), b"413"),
        (HEAD + b"X: y\r\n" * 20_000, b"431"),
    ],
)
async def test_what_is_too_large_is_answered_and_closed(request_, status):
    server = Server()
    await server.say(*(request_[n : n + 5000] for n in range(0, len(request_), 5000)))
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


async def test_body_is_sent_after_the_server_said_continue():
    server = Server()
    await server.say(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert server.transport.written.startswith(b"HTTP/1.1 100")
    await server.say(b"ok")
    assert server.asked == [("PUT", "/", b"ok")]
    assert server.transport.written.count(b"HTTP/1.1 100") == 1


async def test_answer_to_head_has_the_length_and_no_body():
    server = Server(b"four")
    await server.say(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", PLAIN)
    head, _, rest = server.transport.written.partition(b"\r\n\r\n")
    assert b"content-length: 4" in head.lower()
    assert rest.startswith(b"HTTP/1.1 200 OK")
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "request_",
    [b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"],
)
async def test_connection_is_closed_where_the_client_wants_it(request_):
    server = Server(b"last")
    await server.say(request_)
    assert server.transport.written.endswith(b"last")
    assert server.transport.is_closed
    await server.say(PLAIN)
    assert len(server.asked) == 1


async def test_request_that_does_not_end_is_given_up():
    server = Server(idle_timeout=0.01)
    await server.say(PLAIN[:-1])
    async with asyncio.timeout(5):
        await server.transport.closed.wait()
    assert server.asked == []


async def test_repeated_headers_are_joined():
    server = Server()
    await server.say(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: a\r\nACCEPT: b\r\n\r\n")
    assert server.headers["accept"] == "a, b"
