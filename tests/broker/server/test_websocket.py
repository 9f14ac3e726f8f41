"""The WebSocket endpoint: which origins may connect, and how frames are handled."""

import contextlib
import socket
import urllib.request

import pytest
import wsproto
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from pairbus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame, sasl_frame
from pairbus.amqp.performatives import Open
from pairbus.amqp.sasl import SaslInit
from pairbus.broker import run
from pairbus.broker.settings import Limits

PATH = "/$servicebus/websocket"


class Client:
    """A WebSocket client that says exactly what a test wants."""

    def __init__(self, port, *, origin=None, host=None, subprotocols=("AMQPWSB10",), headers=()):
        self.ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        extra = [(b"Origin", origin.encode())] if origin is not None else []
        self.send(
            Request(
                host=host or f"127.0.0.1:{port}",
                target=PATH,
                subprotocols=list(subprotocols),
                extra_headers=extra + list(headers),
            )
        )
        self.answer = self.next()

    def send(self, *events):
        self.socket.sendall(b"".join(self.ws.send(event) for event in events))

    def next(self):
        while True:
            for event in self.ws.events():
                return event
            data = self.socket.recv(65536)
            if not data:
                return None
            self.ws.receive_data(data)


@contextlib.contextmanager
def connected(port, **options):
    client = Client(port, **options)
    try:
        yield client
    finally:
        client.socket.close()


@pytest.fixture(scope="module")
def namespace():
    with run() as ns:
        yield ns


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://evil.example", None),
        ("http://localhost:{other}", None),  # a page of another server on this machine
        ("http://evil.example:{port}", "evil.example:{port}"),  # its name made to point here
        ("https://broker.corp.example:{port}", "broker.corp.example:{port}"),  # nor can we tell
        ("null", None),
        ("http://[", None),
    ],
)
def test_page_of_a_foreign_origin_is_refused(namespace, origin, host):
    port = namespace.port
    names = {"port": port, "other": port + 1}
    host = host and host.format(**names)
    with connected(port, origin=origin.format(**names), host=host) as client:
        assert isinstance(client.answer, RejectConnection)
        assert client.answer.status_code == 403


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, None),
        ("https://127.0.0.1:{port}", "127.0.0.1:{port}"),  # as websocket-client sends it
        ("http://localhost:{port}", "LocalHost:{port}"),
        ("https://broker:{port}", "broker:{port}"),  # a container's name
        ("https://contoso.servicebus.windows.net", "contoso.servicebus.windows.net"),
    ],
)
def test_client_without_origin_or_with_the_origin_of_the_broker_is_accepted(
    namespace, origin, host
):
    port = namespace.port
    origin, host = origin and origin.format(port=port), host and host.format(port=port)
    with connected(port, origin=origin, host=host) as client:
        assert isinstance(client.answer, AcceptConnection)
        assert client.answer.subprotocol == "AMQPWSB10"
        client.send(BytesMessage(SASL_HEADER))
        assert bytes(client.next().data).startswith(SASL_HEADER)


def test_origin_can_be_allowed():
    with run(allowed_origins=["https://app.example", "https://broker.corp.example:1"]) as ns:
        own = {"origin": "https://broker.corp.example:1", "host": "broker.corp.example:1"}
        with connected(ns.port, **own) as client:
            assert isinstance(client.answer, AcceptConnection)
        with connected(ns.port, origin="https://app.example") as client:
            assert isinstance(client.answer, AcceptConnection)
        with connected(ns.port, origin="https://other.example") as client:
            assert isinstance(client.answer, RejectConnection)
    with (
        run(allowed_origins=["*"]) as ns,
        connected(ns.port, origin="https://other.example") as client,
    ):
        assert isinstance(client.answer, AcceptConnection)


def test_subprotocol_must_be_that_of_amqp(namespace):
    with connected(namespace.port, subprotocols=["mqtt"]) as client:
        assert isinstance(client.answer, RejectConnection)


def test_message_may_come_in_fragments_with_pings_between(namespace):
    with connected(namespace.port) as client:
        client.send(BytesMessage(SASL_HEADER[:3], message_finished=False))
        client.send(Ping(b"there?"), BytesMessage(SASL_HEADER[3:]))
        pong, answer = client.next(), client.next()
        assert pong == Pong(bytearray(b"there?"))
        assert bytes(answer.data).startswith(SASL_HEADER)


def test_frame_may_come_byte_by_byte(namespace):
    with connected(namespace.port) as client:
        for byte in client.ws.send(BytesMessage(SASL_HEADER)):
            client.socket.sendall(bytes((byte,)))
        assert bytes(client.next().data).startswith(SASL_HEADER)


def test_close_is_answered(namespace):
    with connected(namespace.port) as client:
        client.send(CloseConnection(code=1000))
        answer = client.next()
        assert isinstance(answer, CloseConnection)
        assert answer.code == 1000
        assert client.socket.recv(1) == b""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x02ab", 1002),  # a client's frame without a mask
        (b"\xf2\x80\x00\x00\x00\x00", 1002),  # reserved bits
    ],
)
def test_frame_that_is_not_allowed_ends_the_connection(namespace, data, code):
    with connected(namespace.port) as client:
        client.socket.sendall(data)
        assert closing(client).code == code
        assert client.socket.recv(1) == b""


def test_message_larger_than_a_frame_of_amqp_ends_the_connection():
    with run(limits=Limits(frame_size=4096)) as ns, connected(ns.port) as client:
        # Given bytes that AMQP has nothing against
        start = SASL_HEADER + sasl_frame(SaslInit("ANONYMOUS").encode()) + AMQP_HEADER
        start += frame(0, Open("c").encode())
        # When they are in a message of more than 4,096 bytes
        client.send(BytesMessage(start + EMPTY_FRAME * 600))
        # Then the WebSocket refuses them
        assert closing(client).code == 1009
        assert client.socket.recv(1) == b""
    with run(limits=Limits(frame_size=4096)) as ns, connected(ns.port) as client:
        # And in smaller messages they are welcome
        client.send(BytesMessage(start), *[BytesMessage(EMPTY_FRAME * 100)] * 6, Ping(b"well?"))
        while not isinstance(event := client.next(), Pong):
            assert isinstance(event, BytesMessage)


def read_to_the_end(client):
    while client.next():
        pass


def closing(client):
    """Return the close of the server."""
    while not isinstance(event := client.next(), CloseConnection):
        assert event is not None
    return event


def test_text_is_refused(namespace):
    with connected(namespace.port) as client:
        client.send(TextMessage("hello"))
        assert closing(client).code == 1003


@pytest.mark.parametrize("kind", ["refuse", "reset"])
def test_faults_of_connections_reset_those_over_websocket_too(kind):
    with run() as ns, connected(ns.port) as client:
        client.send(BytesMessage(SASL_HEADER))
        assert bytes(client.next().data).startswith(SASL_HEADER)
        with ns.faults.inject(kind), pytest.raises(ConnectionResetError):
            read_to_the_end(client)


def send_handshake(sock, port, version):
    sock.sendall(
        f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Version: {version}\r\n"
        "Sec-WebSocket-Protocol: AMQPWSB10\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )


def test_handshake_of_an_old_version_is_refused(namespace):
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=10) as sock:
        send_handshake(sock, namespace.port, 8)
        assert sock.recv(4096).startswith(b"HTTP/1.1 426 ")


def test_handshake_is_not_answered_by_a_silent_broker():
    with run() as ns, socket.create_connection(("127.0.0.1", ns.port), timeout=0.1) as sock:
        with ns.faults.silent():
            send_handshake(sock, ns.port, 13)
            for _ in range(3):  # when these are answered, the broker has read the handshake
                health = f"http://127.0.0.1:{ns.port}/$control/health"
                urllib.request.urlopen(health, timeout=60).close()
            with pytest.raises(TimeoutError):
                sock.recv(1)
        sock.settimeout(60)
        assert sock.recv(1) == b""
