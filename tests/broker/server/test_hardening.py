"""One bad client cannot take the broker down, nor learn anything."""

import contextlib
import os
import socket
import time

import pytest

from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.events import Attached, Closed, Detached, Opened
from pairbus.amqp.performatives import Coordinator, Source, Target
from pairbus.amqp.sasl import ANONYMOUS, Mechanism
from pairbus.broker import BrokerStartError, Limits, run
from pairbus.broker.settings import BrokerSettings

HEADER = b"AMQP\x03\x01\x00\x00"


def plain(user, password):
    """The mechanism PLAIN (RFC 4616)."""
    return Mechanism("PLAIN", f"\0{user}\0{password}".encode())


class RawClient:
    """A client on the engine, without any manners of its own."""

    def __init__(self, port: int, sasl: Mechanism | None = ANONYMOUS) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.engine = Connection(Role.CLIENT, hostname="127.0.0.1", sasl=sasl)
        self.engine.open()
        self.session = self.engine.begin()
        self.events: list = []

    def flush(self) -> None:
        self.socket.sendall(self.engine.data_to_send())

    def until(self, kind: type):
        """Read until an event of this kind."""
        while True:
            for index, event in enumerate(self.events):
                if isinstance(event, kind):
                    return self.events.pop(index)
            self.flush()
            data = self.socket.recv(65536)
            assert data, "the broker has closed the connection"
            self.events += self.engine.receive_data(data)

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(scope="module")
def ns():
    with run(limits=Limits(connections=20, links=8, frame_size=65536)) as ns:
        ns.create_queue("q")
        yield ns


@pytest.fixture(scope="module")
def impatient():
    """A namespace that shows out soon whoever says nothing, or shows no token."""
    with run(limits=Limits(sniff_timeout=1.0, open_timeout=2.0)) as ns:
        yield ns


@pytest.fixture
def client(ns):
    client = RawClient(ns.port)
    yield client
    client.close()


def is_alive(ns) -> bool:
    with contextlib.closing(RawClient(ns.port)) as client:
        return client.until(Opened) is not None


def ends(sock: socket.socket) -> bool:
    """Whether the broker ends this connection, rather than answering for ever."""
    sock.settimeout(60)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    "noise",
    [
        b"\x00" * 64,
        b"AMQP\x09\x09\x09\x09",
        HEADER + b"\xff" * 512,
        HEADER + b"\x00\x00\x00\x08\x02\x01\x00\x00" * 3,
        b"AMQP\x00\x01\x00\x00" + b"\xff" * 512,
        b"\x16\x03\x01\x00\x05hello",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"BREW /pot HTCPCP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
        b"PUT /q HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_noise_ends_its_own_connection_only(ns, noise) -> None:
    with socket.create_connection(("127.0.0.1", ns.port), timeout=10) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(noise)
        assert ends(sock)
    assert is_alive(ns)


def test_random_bytes_after_a_good_start_end_their_own_connection_only(ns, client) -> None:
    client.until(Opened)
    with contextlib.suppress(OSError):
        client.socket.sendall(os.urandom(4096))
    assert ends(client.socket)
    assert is_alive(ns)


@pytest.mark.parametrize("said", [b"", b"AMQP\x00\x01\x00\x00"])
def test_a_client_that_says_nothing_more_is_shown_out(impatient, said) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as sock:
        sock.sendall(said)
        assert ends(sock)


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [HEADER + b"\x00" * 200, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100, b"PUT / HTTP/1.1\r\n"],
)
def test_a_client_that_says_it_slowly_is_shown_out(impatient, said) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as sock:
        try:
            for byte in said * 100:
                sock.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            return
    pytest.fail("the broker listened to the end")


def test_a_client_that_never_shows_a_token_is_shown_out(impatient) -> None:
    with contextlib.closing(RawClient(impatient.port)) as client:
        client.until(Opened)
        assert ends(client.socket)


def test_without_a_token_nothing_is_let_in_or_told(client) -> None:
    for address in ("q", "no-such-queue"):
        link = client.engine.attach_sender(client.session, address, target=Target(address=address))
        attached = client.until(Attached)
        assert attached.link is link
        assert attached.attach.target is None
        assert client.until(Detached).error.condition == "amqp:unauthorized-access"


def test_transactions_are_refused_by_name(client, caplog) -> None:
    client.engine.attach_sender(client.session, "txn", target=Coordinator())
    assert client.until(Detached).error.condition == "amqp:not-implemented"
    assert [r for r in caplog.records if "transactions" in r.getMessage()]


def test_a_link_without_an_address_is_refused(client) -> None:
    client.engine.attach_receiver(client.session, "nowhere", source=None)
    assert client.until(Detached).error.condition == "amqp:not-allowed"


def test_too_many_links_end_the_connection(ns, client) -> None:
    for number in range(20):  # before the broker's begin tells the engine how many it may attach
        client.engine.attach_receiver(
            client.session, f"l{number}", source=Source(address="$cbs"), target=Target("me")
        )
    assert client.until(Closed).error.condition == "amqp:connection:framing-error"
    assert ends(client.socket)
    assert is_alive(ns)


def test_too_many_connections_are_refused_and_the_others_live(ns) -> None:
    with contextlib.closing(RawClient(ns.port)) as first:
        first.until(Opened)
        address = ("127.0.0.1", ns.port)
        crowd: list[socket.socket] = []
        refused = 0
        for _ in range(40):
            try:
                crowd.append(socket.create_connection(address, timeout=10))
            except ConnectionResetError:
                refused += 1
        try:
            assert refused or ends(crowd[-1])
            first.engine.attach_receiver(
                first.session, "cbs", source=Source(address="$cbs"), target=Target("me")
            )
            assert first.until(Attached).attach.source.address == "$cbs"
        finally:
            for sock in crowd:
                sock.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert is_alive(ns)
            break
        except (AssertionError, OSError):  # the broker has not noticed yet that they left
            time.sleep(0.05)
    else:
        pytest.fail("the broker did not recover")


def test_a_frame_larger_than_allowed_ends_the_connection(ns, client) -> None:
    client.until(Opened)
    client.socket.sendall((200_000).to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"\x00" * 1000)
    assert ends(client.socket)


def test_keys_do_not_show(ns) -> None:
    settings = BrokerSettings(key="very-secret")
    assert "very-secret" not in repr(settings)
    assert "SAS_KEY_VALUE" not in repr(ns)


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},
        {"host": "10.0.0.1"},
        {"host": "broker.example.org"},
        {"host": "0.0.0.0", "key": "SAS_KEY_VALUE"},
    ],
)
def test_the_well_known_key_is_for_loopback_only(options) -> None:
    with pytest.raises(ValueError, match="key"):
        run(**options)


def test_a_key_of_your_own_opens_any_address_and_its_control_api_wants_a_token() -> None:
    import urllib.error
    import urllib.request

    from tests.sas import make_token

    with run(host="0.0.0.0", key="my-own-key") as ns:
        assert "SharedAccessKey=my-own-key" in ns.connection_string
        url = f"http://127.0.0.1:{ns.port}/$control/health"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, timeout=10)
        assert caught.value.code == 401
        token = make_token(
            f"sb://127.0.0.1:{ns.port}/",
            "RootManageSharedAccessKey",
            "my-own-key",
            expires_at=time.time() + 60,
        )
        request = urllib.request.Request(url, headers={"Authorization": token})
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.status == 200


def test_a_port_in_use_is_one_clear_line(ns) -> None:
    with pytest.raises(BrokerStartError, match=f"port {ns.port} of 127.0.0.1 is in use"):
        run(port=ns.port).__enter__()


def test_a_data_folder_in_use_is_one_clear_line(tmp_path) -> None:
    with run(data=tmp_path), pytest.raises(BrokerStartError, match="in use by another broker"):
        run(data=tmp_path).__enter__()
