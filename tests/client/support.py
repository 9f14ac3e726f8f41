"""Messages for the tests, and a peer that misbehaves as a test says."""

import fcntl
import socket
import struct
import termios
import threading
import time

from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.events import Attached, Begun, Delivery, Opened
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.performatives import ACCEPTED, Error
from pairbus.amqp.types import Int
from pairbus.client import SasKey

KEY = SasKey("RootManageSharedAccessKey", "SAS_KEY_VALUE")


def message(n, size=100, **properties):
    return Message.build(
        properties=Properties(message_id=str(n), **properties), data=b"x" * size
    ).encode()


def ids(received):
    return [one.message.properties.message_id for one in received]


def is_entity(event):
    return isinstance(event, Delivery) and event.link.target.address != "$cbs"


def _entity(link):
    address = link.source.address if link.is_sender else link.target.address
    return address.rpartition("/")[2]


class Peer:
    """A server on a real socket: the engine, in a thread; `act` sees every event."""

    def __init__(self, act=lambda peer, event: None, **options):
        self.act = act
        self.options = options
        self.status = 202  # of every answer to a put-token
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.socket = None
        self.links = []  # in the order of their attaching
        self.lock = threading.Lock()
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
        self.thread.join(60)
        if self.socket is not None:
            self.socket.close()

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, *exc):
        self.__exit__()

    @property
    def address(self):
        """How a client finds it."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "tls": False,
            "credential": SasKey("n", "k"),
            "timeout": 10,
        }

    def serve(self):
        try:
            self.socket, _ = self.listener.accept()
        except OSError:
            return
        self.engine = engine = Connection(Role.SERVER, **self.options)
        replies = {}
        try:
            while data := self.socket.recv(65536):
                with self.lock:
                    for event in engine.receive_data(data):
                        self.answer(engine, event, replies)
                        self.act(self, event)
                    self.socket.sendall(engine.data_to_send())
        except (OSError, ProtocolError):
            pass

    def links_to(self, address):
        """The links that were attached to this entity, oldest first."""
        return [one for one in self.links if _entity(one) == address]

    def detach(self, address, condition, description=None):
        """Detach the newest link to an entity, unasked."""
        with self.lock:
            self.engine.detach(self.links_to(address)[-1], Error(condition, description))
            self.socket.sendall(self.engine.data_to_send())
        self.wait_for_arrival()

    def wait_for_arrival(self):
        """Wait until all bytes are in the client's socket, where it may not have read them."""
        while struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))[0]:
            time.sleep(0.001)

    def answer(self, engine, event, replies):
        match event:
            case Opened():
                engine.open()
            case Begun(session):
                engine.begin(session)
            case Attached(link):
                engine.attach_reply(link)
                self.links.append(link)
                if link.is_sender:
                    replies[link.source.address] = link
                else:
                    engine.flow(link, 100)
            case Delivery() if event.link.target.address == "$cbs":
                engine.settle(event.link, event.delivery_id, state=ACCEPTED)
                request = Message.parse(event.payload)
                answer = Message.build(
                    properties=Properties(correlation_id=request.properties.message_id),
                    application_properties={"status-code": Int(self.status)},
                    value=None,
                )
                engine.transfer(replies["$cbs"], answer.encode(), b"1", settled=True)
