"""The fault proxy does to a connection what each of its modes says."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from pairbus.broker import run
from pairbus.testing import FaultProxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.receive():
            self.server.heard.append(data)  # type: ignore[attr-defined]
            self.server.news.set()  # type: ignore[attr-defined]
            try:
                self.request.sendall(data)
            except OSError:
                return

    def receive(self) -> bytes:
        try:
            return self.request.recv(65536)
        except OSError:
            return b""


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.news = threading.Event()
        super().__init__(("127.0.0.1", 0), Echo)


@pytest.fixture(scope="module")
def echo() -> Iterator[EchoServer]:
    with EchoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[FaultProxy]:
    echo.heard.clear()
    echo.news.clear()
    with FaultProxy(f"127.0.0.1:{echo.server_address[1]}") as proxy:
        yield proxy


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=30)


def test_pass_forwards_both_ways(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_refuse_resets_what_is_open_and_refuses_what_is_new(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"hello")
        client.recv(100)
        proxy.mode = "refuse"
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.mode = "pass"
    with connect(proxy) as client:
        client.sendall(b"again")
        assert client.recv(100) == b"again"


def is_taken(port: int) -> bool:
    """Whether no other program can get this port."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


def test_port_that_refuses_is_not_given_to_others(proxy: FaultProxy) -> None:
    proxy.mode = "refuse"
    assert is_taken(proxy.port)
    proxy.close()
    assert not is_taken(proxy.port)


def test_proxy_that_cannot_listen_leaves_no_thread_behind(echo: EchoServer) -> None:
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="assign"):
        FaultProxy(f"127.0.0.1:{echo.server_address[1]}", host="192.0.2.1").start()
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_port_of_a_namespace_is_not_given_to_others_until_it_is_closed() -> None:
    with run() as namespace:
        with namespace.faults.inject("refuse"):
            assert is_taken(namespace.port)
        namespace.stop()
        assert is_taken(namespace.port)
        namespace.start()
        namespace.kill()
        assert is_taken(namespace.port)
        port = namespace.port
    assert not is_taken(port)


def test_reset_accepts_and_resets(proxy: FaultProxy) -> None:
    proxy.mode = "reset"
    with pytest.raises(ConnectionResetError), connect(proxy) as client:  # then, or even before
        client.recv(1)


def test_stall_holds_bytes_back_and_goes_on_where_it_stopped(
    proxy: FaultProxy, echo: EchoServer
) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        proxy.mode = "stall"
        client.sendall(b"two")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        assert echo.heard == [b"one"]
        client.settimeout(30)
        proxy.mode = "pass"
        assert client.recv(100) == b"two"


def test_deaf_lets_the_broker_hear_and_swallows_its_answers(
    proxy: FaultProxy, echo: EchoServer
) -> None:
    with connect(proxy) as client:
        proxy.mode = "deaf"
        client.sendall(b"hello")
        assert echo.news.wait(60)
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.settimeout(30)
        proxy.mode = "pass"  # a stream with a hole in it is of no use
        with pytest.raises(ConnectionResetError):
            client.recv(100)


def test_slow_still_delivers(proxy: FaultProxy) -> None:
    proxy.mode = "slow"
    with connect(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_cut_forwards_half_and_resets(proxy: FaultProxy, echo: EchoServer) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        client.recv(100)
        echo.news.clear()
        proxy.mode = "cut"
        client.sendall(b"0123456789")
        assert echo.news.wait(60)
        assert echo.heard[-1] == b"01234"
        with pytest.raises(ConnectionResetError):
            client.recv(100)


def send_more(client: socket.socket, proxy: FaultProxy, mode: str) -> None:
    client.sendall(b"abcdefghij")  # fails itself if the reset came before it
    proxy.mode = mode
    client.recv(100)


def test_nothing_follows_the_half_that_was_forwarded(proxy: FaultProxy, echo: EchoServer) -> None:
    for after in ("cut", "pass"):
        proxy.mode = "pass"
        with connect(proxy) as client:
            client.sendall(b"one")
            client.recv(100)
            echo.heard.clear()
            echo.news.clear()
            proxy.mode = "cut"
            client.sendall(b"0123456789")
            assert echo.news.wait(60)
            with pytest.raises(ConnectionResetError):
                send_more(client, proxy, after)
            assert b"".join(echo.heard) == b"01234"


def test_unknown_mode_is_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="stall"):
        proxy.mode = "explode"


def test_connection_string_points_at_the_proxy() -> None:
    target = "Endpoint=sb://127.0.0.1:5999;SharedAccessKeyName=k;SharedAccessKey=v=;UseDevelopmentEmulator=true"
    with FaultProxy(target) as proxy:
        assert proxy.connection_string == target.replace("5999", str(proxy.port))


def test_closing_ends_connections_whose_target_does_not_read() -> None:
    size = 1 << 24  # more than the buffers between the two
    with socket.create_server(("127.0.0.1", 0)) as target:
        with FaultProxy(f"127.0.0.1:{target.getsockname()[1]}") as proxy:
            with connect(proxy) as client:
                connection, _ = target.accept()
                client.settimeout(60)
                client.sendall(bytes(size))
            while proxy.connections:  # until it has seen the client's end
                time.sleep(0.001)
        with connection:
            connection.settimeout(30)
            taken = 0
            with contextlib.suppress(ConnectionResetError):
                while data := connection.recv(1 << 20):
                    taken += len(data)
            assert taken < size


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_proxy_of_an_ipv6_address_listens_on_one() -> None:
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as target,
        FaultProxy(f"[::1]:{target.getsockname()[1]}") as proxy,
    ):
        assert proxy.address == f"[::1]:{proxy.port}"
        proxy.mode = "refuse"
        proxy.mode = "pass"  # listens again
        with socket.create_connection(("::1", proxy.port), timeout=30) as client:
            client.sendall(b"hello")
            connection, _ = target.accept()
            with connection:
                connection.settimeout(30)
                assert connection.recv(5) == b"hello"
