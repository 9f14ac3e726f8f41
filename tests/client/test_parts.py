"""The lean client's parts, and its behaviour towards peers that only the engine can play."""

import socket
import threading
import time

import pytest

from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.events import Attached, Begun, Delivery, Disposed, Flowed, Opened
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.performatives import ACCEPTED, Error, Released
from pairbus.amqp.types import Int
from pairbus.client import (
    AuthenticationError,
    ConnectionLostError,
    LeanConnection,
    LinkDetachedError,
    OperationTimeoutError,
    RejectedError,
    SasKey,
    SasToken,
)
from pairbus.client.auth import CredentialTokens, provider_of
from pairbus.client.endpoint import endpoint_of
from pairbus.client.transport import Transport


class Peer:
    """A server of the test's own on a real socket: the engine, in a thread."""

    def __init__(self, act=lambda peer, event: None, **options):
        self.act = act
        self.options = options
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.socket = None
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.listener.close()
        if self.socket is not None:
            try:
                self.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.thread.join(10)
        if self.socket is not None:
            self.socket.close()

    def connect(self, **options):
        return LeanConnection(
            host="127.0.0.1", port=self.port, tls=False, credential=SasKey("n", "k"),
            **{"timeout": 10, **options},
        )  # fmt: skip

    def serve(self):
        try:
            self.socket, _ = self.listener.accept()
        except OSError:
            return
        self.engine = engine = Connection(Role.SERVER, **self.options)
        replies = {}
        try:
            while data := self.socket.recv(65536):
                for event in engine.receive_data(data):
                    self.answer(engine, event, replies)
                    self.act(self, event)
                self.socket.sendall(engine.data_to_send())
        except (OSError, ProtocolError):
            pass

    def answer(self, engine, event, replies):
        match event:
            case Opened():
                engine.open()
            case Begun(session):
                engine.begin(session)
            case Attached(link):
                engine.attach_reply(link)
                if link.is_sender:
                    replies[link.source.address] = link
                else:
                    engine.flow(link, 100)
            case Delivery() if event.link.target.address == "$cbs":
                engine.settle(event.link, event.delivery_id, state=ACCEPTED)
                request = Message.parse(event.payload)
                answer = Message.build(
                    properties=Properties(correlation_id=request.properties.message_id),
                    application_properties={"status-code": Int(getattr(self, "status", 202))},
                    value=None,
                )
                engine.transfer(replies["$cbs"], answer.encode(), b"1", settled=True)


def is_entity(event):
    return isinstance(event, Delivery) and event.link.target.address != "$cbs"


def test_released_message_is_told_as_not_taken():
    def act(peer, event):
        if is_entity(event):
            peer.engine.settle(event.link, event.delivery_id, state=Released())

    with Peer(act) as peer, peer.connect() as lean:
        (outcome,) = lean.sender("q").send_batch([b"x"])
        assert isinstance(outcome.error, RejectedError)


def test_outcome_that_is_not_settled_yet_is_settled_by_us():
    settled = threading.Event()

    def act(peer, event):
        if is_entity(event):
            peer.engine.settle(event.link, event.delivery_id, state=ACCEPTED, settled=False)
        elif type(event).__name__ == "Disposed":
            settled.set()

    with Peer(act) as peer, peer.connect() as lean:
        sender = lean.sender("q")
        assert sender.send_batch([b"x"])[0].is_accepted
        assert settled.wait(10)


def test_ended_session_is_a_lost_connection():
    def act(peer, event):
        if is_entity(event):
            peer.engine.end(event.link.session, Error("amqp:internal-error", "broken"))

    with Peer(act) as peer, peer.connect() as lean:
        (outcome,) = lean.sender("q").send_batch([b"x"])
        assert isinstance(outcome.error, ConnectionLostError)
        assert outcome.error.condition == "amqp:internal-error"


def test_peer_that_speaks_nonsense_is_a_lost_connection():
    def act(peer, event):
        if is_entity(event):
            peer.socket.sendall(b"\x00\x00\x00\x01nonsense")

    with Peer(act) as peer, peer.connect() as lean:
        (outcome,) = lean.sender("q").send_batch([b"x"])
        assert outcome.error.condition == "amqp:connection:framing-error"


def test_refused_token_leaves_the_connection_usable():
    with Peer() as peer, peer.connect() as lean:
        peer.status = 404
        with pytest.raises(AuthenticationError) as caught:
            lean.sender("q")
        assert caught.value.status_code == 404
        peer.status = 202
        assert not lean.sender("q").is_detached


def test_messages_go_in_frames_that_the_peer_takes():
    seen = []

    def act(peer, event):
        if is_entity(event):
            seen.append(event.payload)
            peer.engine.settle(event.link, event.delivery_id, state=ACCEPTED)

    with Peer(act, max_frame_size=512) as peer, peer.connect() as lean:
        body = Message.build(data=bytes(range(256)) * 40).encode()
        assert lean.sender("q").send_batch([body])[0].is_accepted
        assert seen == [body]


def test_large_sends_do_not_wait_for_a_reader_beside_them():
    def act(peer, event):
        if is_entity(event):
            peer.engine.settle(event.link, event.delivery_id, state=ACCEPTED)

    with Peer(act) as peer, peer.connect() as lean:
        receiver, sender = lean.receiver("q"), lean.sender("q")
        rang = []
        waiter = threading.Thread(target=lambda: rang.append(_lost(receiver)))
        waiter.start()
        outcomes = sender.send_batch([b"x" * 900_000] * 30)  # more than any socket buffer
        assert all(outcome.is_accepted for outcome in outcomes)
        lean.close()
        waiter.join(10)
        assert rang == [True]


def _lost(receiver):
    try:
        receiver.wait(60)
    except ConnectionLostError:
        return True
    return False


def test_peer_that_never_drains_is_timed_out():
    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 5:
            peer.engine.transfer(event.link, b"one", b"t" * 16)

    with Peer(act) as peer, peer.connect() as lean:
        receiver = lean.receiver("q")
        assert [one.payload for one in receiver.receive_now(5, timeout=0.05)] == [b"one"]
        assert receiver.broke_off  # there may be more
        with pytest.raises(OperationTimeoutError):
            receiver.receive_now(6, timeout=0.05)


def test_a_bell_has_rung_when_the_peer_has_its_message_back():
    released = []

    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 1:
            peer.engine.transfer(event.link, b"one", b"t" * 16)
        if isinstance(event, Disposed):
            released.append(event)
            if len(released) > 1:  # the first one it never answers
                peer.engine.settle_unknown(event.session, event.first, event.last, event.state)

    with Peer(act) as peer, peer.connect() as lean:
        receiver = lean.receiver("q")
        lean.timeout = 0.1
        with pytest.raises(OperationTimeoutError, match="giving back"):
            receiver.wait(10)
        lean.timeout = 10
        assert receiver.wait(10)
        assert [event.settled for event in released] == [False, False]


@pytest.mark.parametrize("end", ["detach", "close", "drop"])
def test_what_came_before_a_receive_broke_off_is_given_and_told(end):
    def act(peer, event):
        if not isinstance(event, Flowed) or event.link is None:
            return
        if event.link.credit == 2:
            for tag in (b"1" * 16, b"2" * 16):
                peer.engine.transfer(event.link, tag[:1], tag)
        elif event.link.credit == 512:  # the second time it asks: less than that comes
            peer.engine.transfer(event.link, b"3", b"3" * 16)
            if end == "detach":
                peer.engine.detach(event.link, Error("amqp:internal-error", "gone"))
            elif end == "close":
                peer.engine.close(Error("amqp:connection:forced", "gone"))
            else:
                peer.socket.sendall(peer.engine.data_to_send())
                peer.socket.shutdown(socket.SHUT_RDWR)

    with Peer(act) as peer, peer.connect() as lean:
        receiver = lean.receiver("q")
        receiver._mean_bytes = 1  # so that it asks for two, and then for as many as it may
        assert len(receiver.take_now(2, 2)) == 2
        assert not receiver.broke_off
        assert receiver.take_now(1000, 1000) == [(b"3" * 16, b"3")]
        assert receiver.broke_off
        with pytest.raises((LinkDetachedError, ConnectionLostError)):
            receiver.take_now(1, 1)


def test_link_refused_while_receiving_says_why():
    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 5:
            peer.engine.detach(event.link, Error("com.microsoft:entity-disabled", "off"))

    with Peer(act) as peer, peer.connect() as lean:
        with pytest.raises(LinkDetachedError) as caught:
            lean.receiver("q").receive_now(5)
        assert caught.value.condition == "com.microsoft:entity-disabled"
        receiver = lean.receiver("q")
        with pytest.raises(LinkDetachedError):
            receiver.receive(5, 10)


def test_connection_dies_with_its_peer_even_unused():
    with Peer() as peer:
        lean = peer.connect().connect()
        assert lean.is_usable
        peer.socket.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + 10
        while lean.is_usable:
            assert time.monotonic() < deadline
        assert "closed" in repr(lean)
        lean.close()


def test_ready_signatures_are_used_until_they_expire():
    token = SasToken("SharedAccessSignature sr=a&sig=s3cret&se=1700000000&skn=n")
    assert token.expires_on == 1700000000
    assert "s3cret" in token.token("x").text
    assert "s3cret" not in f"{token!r}{token.token('x')!r}"
    _, provider, entity = endpoint_of(
        "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b&se=5;EntityPath=q"
    )
    assert isinstance(provider, SasToken)
    assert entity == "q"


def test_credentials_are_recognised():
    key = SasKey("n", "secret")
    assert provider_of(key) is key
    assert "secret" not in repr(key)

    class Azure:
        def get_token(self, scope): ...

    assert isinstance(provider_of(Azure()), CredentialTokens)
    with pytest.raises(TypeError, match="get_token"):
        provider_of(object())
    with pytest.raises(ValueError, match="host and credential"):
        LeanConnection()


KEY = "SharedAccessKeyName=n;SharedAccessKey=k"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Endpoint=contoso.servicebus.windows.net;{KEY}",
         ("contoso.servicebus.windows.net", 5671, True, "contoso.servicebus.windows.net")),
        (f"Endpoint=sb://Contoso.example:99/;{KEY}",
         ("contoso.example", 5671, True, "contoso.example")),
        (f"Endpoint=sb://127.0.0.1;{KEY};UseDevelopmentEmulator=true",
         ("127.0.0.1", 5672, False, "127.0.0.1")),
        (f"Endpoint=sb://[::1]:5999/;{KEY};UseDevelopmentEmulator=true",
         ("::1", 5999, False, "[::1]:5999")),
        (f"Endpoint=sb://[::1]/;{KEY}", ("::1", 5671, True, "[::1]")),
    ],
)  # fmt: skip
def test_endpoint_is_read_from_a_connection_string(text, expected):
    endpoint, provider, entity = endpoint_of(text)
    assert (endpoint.host, endpoint.port, endpoint.tls, endpoint.authority) == expected
    assert isinstance(provider, SasKey)
    assert entity is None


def test_connecting_is_bounded_in_time():
    with socket.socket() as full:  # bound, not listening
        full.bind(("127.0.0.1", 0))
        with pytest.raises((ConnectionLostError, OperationTimeoutError)):
            Transport.connect(*full.getsockname(), tls=None, deadline=time.monotonic() + 0.2)


def test_failing_credential_is_asked_again_later_while_the_old_token_holds():
    class Moody(SasKey):
        def token(self, audience):
            if getattr(self, "moody", False):
                raise RuntimeError("not now")
            return super().token(audience)

    key = Moody("n", "k")
    with Peer() as peer:
        lean = LeanConnection(host="127.0.0.1", port=peer.port, tls=False, credential=key)
        with lean:
            receiver = lean.receiver("q")
            key.moody = True
            (grant,) = lean._tokens._grants.values()
            grant.renew_at = 0.0
            with pytest.raises(OperationTimeoutError):
                receiver.receive_now(1, timeout=0.02)
            assert grant.renew_at > time.monotonic()


def test_errors_survive_pickling():
    import pickle

    for error in (
        AuthenticationError("amqp:unauthorized-access", "no", 401),
        OperationTimeoutError("sending"),
        ConnectionLostError("amqp:socket-error", "gone", {"a": 1}),
        RejectedError("amqp:not-found"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert again.__dict__ == error.__dict__
        assert str(again) == str(error)


@pytest.mark.slow
def test_peer_that_falls_silent_is_given_up():
    def act(peer, event):
        if isinstance(event, Flowed) and event.link is not None and event.link.credit == 1:
            threading.Event().wait(1.0)  # says nothing, heartbeats included

    with Peer(act) as peer, peer.connect(idle_time_out=0.2) as lean:
        with pytest.raises(ConnectionLostError) as caught:
            lean.receiver("q").wait(30)
        assert caught.value.condition == "amqp:resource-limit-exceeded"


def test_renewal_that_was_refused_is_tried_again_by_the_next_link():
    with Peer() as peer, peer.connect() as lean:
        receiver = lean.receiver("q")
        peer.status = 401
        (grant,) = lean._tokens._grants.values()
        grant.renew_at = 0.0
        with pytest.raises(OperationTimeoutError):
            receiver.receive_now(1, timeout=0.1)
        with pytest.raises(AuthenticationError):
            lean.sender("q")
        peer.status = 202
        assert not lean.sender("q").is_detached
