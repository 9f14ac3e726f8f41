# generated from tests/pairing/_async/test_protection.py by tools/gen_unasync.py; edit that one
"""Pairing while the secondary is down, refuses, or is set up with the least rights."""

import socket
import threading
from time import monotonic

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus import events
from pairbus.administration import admin_client
from pairbus.exceptions import PairingError
from pairbus.options import SyphonOptions
from pairbus.pairing import syphon_hook
from pairbus.pairing._sync import pairing
from pairbus.pairing._sync.protection import Protection
from pairbus.pairing.runtime import blocking
from pairbus.testing import SENDER

pytestmark = [pytest.mark.sdk, pytest.mark.slow]
BACKLOG = "contoso/x-servicebus-transfer"


def test_client_works_while_the_secondary_is_down_and_gets_its_protection_later(world):
    world.secondary.kill()

    started = monotonic()
    client = world.pair(require_secondary=False)
    assert monotonic() - started < 25  # with `require_secondary` 30 seconds
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))

    assert world.bodies(world.primary, "orders") == [b"a"]
    unprotected = world.seen.wait(events.Unprotected)
    assert unprotected.reason == client.status().unprotected
    assert "unprotected:" in str(client.status())

    world.secondary.restart()
    world.seen.wait(events.Protected)
    assert client.status().unprotected is None
    assert len(world.seen.of(events.Unprotected)) == 1
    client.force_failover("orders")
    sender.send_messages(ServiceBusMessage("b"))
    assert [m.body for m in world.backlog()] == [b"b"]


class RecordedSyphon:
    """A syphon that records which backlog queues exist when it is started."""

    def __init__(self, secondary):
        self._secondary = secondary
        self.queues = None
        self.started = threading.Event()
        self.stopped = threading.Event()

    def start(self, options):
        with self._secondary.admin_client() as admin:
            self.queues = [queue.name for queue in admin.list_queues()]
        self.started.set()
        return self

    def stop(self):
        self.stopped.set()


@pytest.fixture
def syphon(world, monkeypatch):
    recorded = RecordedSyphon(world.secondary)
    monkeypatch.setattr(syphon_hook, "_start", recorded.start)
    return recorded


SYPHON = SyphonOptions(primary="PRIMARY", secondary="SECONDARY")


def test_syphon_of_a_new_pair_starts_when_its_backlog_queues_exist(world, syphon):
    client = world.pair(require_secondary=False, enable_syphon=True, syphon=SYPHON)

    assert blocking(syphon.started.wait, 10)
    assert len(syphon.queues) == len(client.status().backlog_queues) == 2
    client.close()
    assert syphon.stopped.is_set()


def test_syphon_starts_later_where_the_secondary_was_down(world, syphon):
    world.secondary.kill()
    client = world.pair(require_secondary=False, enable_syphon=True, syphon=SYPHON)
    assert not syphon.started.is_set()

    world.secondary.restart()
    assert blocking(syphon.started.wait, 20)
    client.close()
    assert blocking(syphon.stopped.wait, 10)


def test_client_closed_before_it_was_protected_starts_no_syphon(world, syphon):
    world.secondary.kill()
    client = world.pair(require_secondary=False, enable_syphon=True, syphon=SYPHON)

    client.close()

    assert not syphon.started.is_set()


def test_silent_secondary_does_not_hold_the_start_up(world):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = world.secondary.connection_string.replace(f":{world.secondary.port}", f":{port}")
        started = monotonic()
        client = world.pair(
            secondary=world.secondary_client(text), secondary_admin=None, require_secondary=False
        )
        assert monotonic() - started < 25  # with `require_secondary` 30 seconds
        assert client.status().unprotected


def test_required_secondary_that_is_down_is_an_error(world):
    world.secondary.kill()

    with pytest.raises(PairingError, match="No backlog queue can be used in the secondary"):
        world.pair(require_secondary=True, send_timeout=1)


def test_required_secondary_that_is_down_is_an_error_without_administration_too(world):
    world.secondary.kill()

    with pytest.raises(PairingError, match="cannot be reached"):
        world.pair(require_secondary=True, secondary_admin=None)


def test_required_queues_that_do_not_exist_are_an_error(world):
    with pytest.raises(PairingError, match="missing or disabled: create them with `pairbus pair"):
        world.pair(require_secondary=True, secondary_admin=None)


def test_required_secondary_that_is_silent_is_a_pairing_error(world, monkeypatch):
    monkeypatch.setattr(pairing, "REQUIRED_WAIT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = world.secondary.connection_string.replace(f":{world.secondary.port}", f":{port}")

        with pytest.raises(PairingError, match=f"{port} did not answer within 0.2 s"):
            world.pair(secondary=world.secondary_client(text), secondary_admin=None)


def test_one_backlog_queue_that_exists_protects(world):
    operator = world.pair(backlog_queue_count=2)
    operator.close()
    world.secondary.do(lambda ns: ns.admin.delete_queue(f"{BACKLOG}/0"))

    world.pair(secondary_admin=None, require_secondary=True)

    assert not world.seen.of(events.Unprotected)


def test_interrupted_pairing_leaves_no_attempts_behind(world, monkeypatch):
    started = []

    def interrupted(protection, wait):
        started.append(protection)
        raise KeyboardInterrupt

    monkeypatch.setattr(Protection, "start", interrupted)

    with pytest.raises(KeyboardInterrupt):
        world.pair(require_secondary=False)

    assert started[0].wait() is False


def test_application_with_the_right_send_alone_is_protected(world):
    """The queues were created before, by an operator; the application has no administration."""
    operator = world.pair(backlog_queue_count=2)
    operator.close()
    host = world.secondary.client().fully_qualified_namespace
    credential = world.secondary.credential(SENDER)
    with_send = ServiceBusClient(host, credential, use_tls=False)

    client = world.pair(secondary=with_send, secondary_admin=None, require_secondary=False)
    client.force_failover("orders")
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("a"))

    assert [m.body for m in world.backlog()] == [b"a"]
    assert client.status().unprotected is None


def test_queues_that_do_not_exist_are_named_before_an_outage(world):
    client = world.pair(secondary_admin=None, require_secondary=False)

    unprotected = world.seen.wait(events.Unprotected)

    assert "contoso/x-servicebus-transfer/0" in unprotected.reason
    assert "pairbus pair create" in unprotected.reason
    assert client.status().unprotected == unprotected.reason


def test_wrong_key_of_the_secondary_is_found_before_an_outage(world):
    operator = world.pair()
    operator.close()
    text = world.secondary.connection_string.replace("SAS_KEY_VALUE", "d3Jvbmc=")
    world.pair(
        secondary=world.secondary_client(text), secondary_admin=None, require_secondary=False
    )

    unprotected = world.seen.wait(events.Unprotected)

    assert "check the key or token, and that it has the right Send" in unprotected.reason
    assert "InvalidSignature" in unprotected.reason
    assert f"127.0.0.1:{world.secondary.port}" in unprotected.reason
    assert "d3Jvbmc=" not in unprotected.reason


def test_administration_of_another_namespace_is_refused(world):
    key = AzureNamedKeyCredential("name", "key")
    host = "contoso-{}.servicebus.windows.net"
    admin = ServiceBusAdministrationClient(host.format("test"), key)
    world.admins.append(admin)

    with pytest.raises(PairingError, match="secondary_admin is for the namespace contoso-test"):
        world.pair(secondary=ServiceBusClient(host.format("dr"), key), secondary_admin=admin)


def test_administration_of_the_primary_is_refused_also_where_hosts_are_addresses(world):
    admin = admin_client(world.primary.connection_string)
    world.admins.append(admin)

    with pytest.raises(PairingError, match="secondary_admin is for the primary, 127"):
        world.pair(secondary_admin=admin)
