"""The monitor reads real namespaces and a real ledger."""

import datetime as dt
import http.server
import socketserver
import threading
import urllib.request

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import broker
from pairbus.monitoring.endpoints import Endpoint, Pair
from pairbus.monitoring.monitor import PairMonitor
from pairbus.monitoring.records import QueueDepth
from pairbus.monitoring.sources import BacklogSource, broker_health

from .conftest import ago, entity

pytestmark = [pytest.mark.sdk, pytest.mark.slow]
QUEUE = "contoso/x-servicebus-transfer/0"


def test_depth_age_and_brokers_come_from_the_namespaces_themselves(scene):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        secondary.create_queue(QUEUE)
        secondary.create_queue("other")
        with (
            ServiceBusClient.from_connection_string(secondary.connection_string) as client,
            client.get_queue_sender(QUEUE) as sender,
        ):
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        pair = Pair(
            primary=Endpoint(primary.connection_string),
            secondary=Endpoint(secondary.connection_string),
            explicit_namespace="contoso",
            ledger=str(scene.ledger),
        )
        monitor = PairMonitor(pair, refresh=0.0)
        try:
            snapshot = monitor.refresh()
            (queue,) = snapshot.backlog.queues
            assert (queue.path, queue.active, queue.dead_letters) == (QUEUE, 2, 0)
            assert queue.oldest_age is not None
            assert [b.is_up for b in snapshot.brokers] == [True, True]
            # When the primary goes down the page says which, and knows the rest all the same.
            primary.stop()
            snapshot = monitor.refresh()
            assert [(b.role, b.is_up) for b in snapshot.brokers] == [
                ("primary", False),
                ("secondary", True),
            ]
            assert snapshot.headline.startswith("Primary contoso is down")
            # And when the secondary does not answer, that is a problem that hides nothing.
            secondary.stop()
            scene.client(entity("orders", "failed_over"))
            snapshot = monitor.refresh()
            assert any("the secondary" in problem for problem in snapshot.problems)
            assert snapshot.entities[0].phase == "failed_over"
        finally:
            monitor.close()


def test_secondary_is_read_less_often_while_its_backlog_is_empty(scene, monkeypatch):
    depth, reads = [0], []

    def read(_self):
        reads.append(True)
        return [QueueDepth(path=QUEUE, active=depth[0], dead_letters=0)]

    now = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]
    monkeypatch.setattr(BacklogSource, "read", read)
    secondary = Endpoint(
        "Endpoint=sb://contoso-dr.invalid/;SharedAccessKeyName=a;SharedAccessKey=b"
    )
    pair = Pair(secondary=secondary, explicit_namespace="contoso")
    monitor = PairMonitor(pair, refresh=5.0, clock=lambda: now[0])
    for _ in range(4):
        monitor.refresh()
        now[0] += dt.timedelta(seconds=6)
    assert len(reads) == 1
    depth[0] = 3
    for _ in range(4):
        monitor.refresh()
        now[0] += dt.timedelta(seconds=6)
    assert len(reads) == 5


def test_events_of_a_client_that_closed_stay_on_the_page(scene):
    monitor = PairMonitor(Pair(ledger=str(scene.ledger)))
    seen = {"event": "FailedOver", "at": "2026-11-15T12:00:00+00:00", "entity": "orders"}
    scene.client(entity("orders", "failed_over"), events=[seen])
    assert len(monitor.refresh().events) == 1
    (scene.ledger / "status" / "web-1.json").unlink()
    snapshot = monitor.refresh()
    assert (snapshot.clients, snapshot.entities) == ([], [])
    assert [e["event"] for e in snapshot.events] == ["FailedOver"]
    # And when it is there again, nothing is told twice.
    scene.client(entity("orders"), events=[seen])
    assert len(monitor.refresh().events) == 1


def test_rates_come_from_each_clients_own_counts(scene):
    monitor = PairMonitor(Pair(ledger=str(scene.ledger)))
    counts = {"sent_primary": 100, "sent_backlog": 0}
    scene.client(entity("q", counts=counts), updated_at=ago(5))
    scene.client(entity("q", counts={"sent_primary": 900}), client_id="web-2")
    monitor.refresh()
    scene.client(entity("q", counts={"sent_primary": 150, "sent_backlog": 10}))
    (scene.ledger / "status" / "web-2.json").unlink()  # a client that closed takes nothing away
    monitor.refresh()
    _, _, to_primary, to_backlog, _ = monitor.history()[-1]
    assert (to_primary, to_backlog) == (pytest.approx(10, rel=0.1), pytest.approx(2, rel=0.1))


def test_depth_is_a_sample_only_when_the_secondary_was_asked(scene):
    with broker.run("contoso-dr") as secondary:
        secondary.create_queue(QUEUE)
        pair = Pair(secondary=Endpoint(secondary.connection_string), explicit_namespace="contoso")
        monitor = PairMonitor(pair, refresh=600)
        assert monitor.snapshot.primary_namespace == "contoso"  # before the first reading
        try:
            for _ in range(3):
                monitor.refresh()
        finally:
            monitor.close()
    assert [sample[1] for sample in monitor.history()] == [0, None, None]


def test_emulator_that_answers_in_amqp_only_is_not_an_embedded_broker():
    class Amqp(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1024)
            self.request.sendall(b"AMQP\x03\x01\x00\x00")

    with socketserver.TCPServer(("127.0.0.1", 0), Amqp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        endpoint = Endpoint(f"Endpoint=sb://{host};UseDevelopmentEmulator=true")
        assert broker_health("primary", endpoint, None) is None
        server.shutdown()


def test_server_that_answers_something_else_is_not_an_embedded_broker():
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_): ...

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        endpoint = Endpoint(f"Endpoint=sb://{host};UseDevelopmentEmulator=true")
        assert broker_health("primary", endpoint, None) is None
        server.shutdown()


def test_broker_whose_control_api_requires_a_token_is_up():
    with broker.run("contoso", host="0.0.0.0", key="a-key-of-our-own") as ns:
        health = broker_health("primary", Endpoint(ns.connection_string), "contoso")
    assert (health.is_up, health.namespace, health.detail) == (True, "contoso", "")


def test_health_of_a_broker_does_not_go_through_a_proxy(servicebus, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # a process reads the variables once
    endpoint = Endpoint(servicebus.connection_string)
    assert broker_health("primary", endpoint, None).is_up
