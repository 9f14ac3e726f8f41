"""CPU µs per message of the engine's hot paths, with messages of 1 KB."""

import gc
import time
import uuid

from pairbus.amqp.codec import encode
from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.disposition_codec import disposition_frame, read_disposition
from pairbus.amqp.events import Attached, Begun, Opened
from pairbus.amqp.message import (
    Header,
    Message,
    Properties,
    join_batch,
    split_batch,
)
from pairbus.amqp.performatives import ACCEPTED, Source, Target
from pairbus.amqp.summary import summarize
from pairbus.amqp.transfer_codec import TransferWriter, read_transfer
from pairbus.amqp.types import Symbol
from pairbus.broker.entities.messages import LOCKED, Delivery, StoredMessage
from pairbus.broker.server.outgoing import render_delivery
from pairbus.client.received import broker_facts


def sample(size=1024):
    return Message.build(
        header=Header(durable=True, ttl=1_209_600_000),
        message_annotations={"x-opt-partition-key": "k"},
        properties=Properties(
            message_id=str(uuid.uuid4()), subject="subject", content_type="text/plain"
        ),
        application_properties={"tenant": "contoso", "n": 5},
        data=b"x" * size,
    ).encode()


def cpu(function, count, per=1, rounds=5):
    """The best of a few rounds, in µs per message."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        for _ in range(count):
            function()
        best = min(best, (time.process_time() - start) / count / per)
    return best * 1e6


def connected(**options):
    client = Connection(Role.CLIENT, **options)
    server = Connection(Role.SERVER, **options)
    client.open()
    session = client.begin()
    sender = client.attach_sender(session, "s", target=Target("q"))
    receiver = client.attach_receiver(session, "r", source=Source("q"))
    client.flow(receiver, 1_000_000_000)
    links = {}
    while client.has_data_to_send or server.has_data_to_send:
        for event in server.receive_data(client.data_to_send()):
            match event:
                case Opened():
                    server.open()
                case Begun(begun):
                    server.begin(begun)
                case Attached(link):
                    links[link.name] = link
                    server.attach_reply(link)
                    if not link.is_sender:
                        server.flow(link, 1_000_000_000)
        client.receive_data(server.data_to_send())
    return client, server, sender, receiver, links["s"], links["r"]


def run():
    payload = sample()
    writer = TransferWriter(0, 3)
    frame = writer.frame(70_000, b"0123456789abcdef", 0, False, payload)
    body = frame[8:]
    yield f"amqp_decode_transfer {cpu(lambda: read_transfer(body, 3), 20000):.2f} us"
    yield f"amqp_parse_message {cpu(lambda: Message.parse(payload), 20000):.2f} us"

    yield f"amqp_summarize_for_broker {cpu(lambda: summarize(payload), 10000):.2f} us"

    def read_all():
        message = Message.parse(payload)
        return message.header, message.message_annotations, message.properties

    yield f"amqp_parse_and_read_sections {cpu(read_all, 5000):.2f} us"
    yield f"amqp_encode_transfer {_encode(writer, payload):.2f} us"

    message = StoredMessage()
    for name, value in {
        "annotations": encode({Symbol("x-opt-partition-key"): "k"}), "dead_letter_source": None,
        "bare": Message.parse(payload).bare, "delivery_count": 0, "durable": True, "priority": 4,
        "enqueued_sequence_number": 5, "enqueued_time": 1_700_000_000_000, "state": LOCKED,
        "sequence_number": 5, "ttl": 1_209_600_000,
    }.items():  # fmt: skip
        setattr(message, name, value)
    delivery = Delivery(uuid.uuid4().bytes_le, 1_700_000_000_000, message)
    yield f"amqp_render_delivery {cpu(lambda: render_delivery(delivery), 20000):.2f} us"
    delivered = render_delivery(delivery)
    yield f"amqp_read_broker_facts {cpu(lambda: broker_facts(delivered), 10000):.2f} us"
    batch = join_batch([payload] * 900)
    yield f"amqp_batch_split {cpu(lambda: split_batch(batch), 50, 900):.2f} us"
    yield f"amqp_batch_join {cpu(lambda: join_batch([payload] * 900), 50, 900):.2f} us"
    disposition = disposition_frame(0, True, 70_000, 70_000, True, ACCEPTED)[8:]
    yield f"amqp_decode_disposition {cpu(lambda: read_disposition(disposition, 3), 20000):.2f} us"

    client, server, sender, receiver, incoming, outgoing = connected()

    def exchange():
        for _ in range(100):
            client.transfer(sender, payload, b"0123456789abcdef")
        for event in server.receive_data(client.data_to_send()):
            server.settle(incoming, event.delivery_id, state=ACCEPTED)
        client.receive_data(server.data_to_send())

    yield f"amqp_engines_send_and_settle_both_ends {cpu(exchange, 100, 100):.2f} us"

    def exchange_one():
        client.transfer(sender, payload, b"0123456789abcdef")
        for event in server.receive_data(client.data_to_send()):
            server.settle(incoming, event.delivery_id, state=ACCEPTED)
        client.receive_data(server.data_to_send())

    yield f"amqp_engines_one_message_per_packet {cpu(exchange_one, 3000):.2f} us"
    messages = [(b"0123456789abcdef", payload[:40], payload[40:])] * 100

    def deliver_many():
        server.transfer_many(outgoing, messages)
        events = client.receive_data(server.data_to_send())
        client.settle(receiver, events[0].delivery_id, events[-1].delivery_id, state=ACCEPTED)
        server.receive_data(client.data_to_send())

    yield f"amqp_engines_deliver_many {cpu(deliver_many, 100, 100):.2f} us"


def _encode(writer, payload):
    return cpu(
        lambda: writer.frame(70_000, b"0123456789abcdef", 0, False, payload, False, None), 20000
    )
