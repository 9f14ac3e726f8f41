# generated from tests/pairing/_async/test_pairing.py by tools/gen_unasync.py; edit that one
"""How two clients become a pair, and when they do not."""

import logging
import sys
from datetime import timedelta

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus import ServiceBusClient

from pairbus import SyphonOptions
from pairbus import pair_namespace
from pairbus.exceptions import PairingError
from pairbus.pairing._sync.client import PairedClient

pytestmark = [pytest.mark.sdk]

SYPHON = SyphonOptions(primary="PRIMARY", secondary="SECONDARY")


def names(world):
    return sorted(world.secondary.do(lambda ns: [queue.name for queue in ns.admin.list_queues()]))


def test_backlog_queues_are_created_with_exactly_these_properties(world):
    world.pair(backlog_queue_count=3)

    assert names(world) == [f"contoso/x-servicebus-transfer/{n}" for n in range(3)]
    admin = world.secondary.admin_client()
    found = admin.get_queue("contoso/x-servicebus-transfer/0")
    admin.create_queue("default")
    default = admin.get_queue("default")
    admin.close()
    expected = {
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2147483647,
        "lock_duration": timedelta(minutes=1),
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }
    for key in default.keys():  # noqa: SIM118  # not iterable by itself
        if key in ("name", "created_at_utc", "updated_at_utc", "accessed_at_utc"):
            continue
        if key in ("default_message_time_to_live", "auto_delete_on_idle"):
            # The service's maximum: a Python timedelta cannot hold its seven digits.
            assert found[key] == default["default_message_time_to_live"]
        else:
            assert found[key] == expected.get(key, default[key]), key


def test_existing_queues_are_used_as_they_are_and_extra_ones_stay(world):
    world.secondary.create_queue("contoso/x-servicebus-transfer/0", max_delivery_count=7)
    world.secondary.create_queue("contoso/x-servicebus-transfer/7")

    world.pair(backlog_queue_count=2)

    assert names(world) == [f"contoso/x-servicebus-transfer/{n}" for n in (0, 1, 7)]
    admin = world.secondary.admin_client()
    assert (admin.get_queue("contoso/x-servicebus-transfer/0")).max_delivery_count == 7
    admin.close()


def test_pairing_works_with_the_primary_down(world):
    world.primary.kill()

    client = world.pair()

    assert len(client.status().backlog_queues) == 2


def test_pair_works_with_the_queues_that_can_be_had(world):
    admin = world.secondary.admin_client()
    world.admins.append(admin)
    create = admin.create_queue

    def failing(path, **kwargs):
        if path.endswith("/1"):
            raise OSError("no route")
        return create(path, **kwargs)

    admin.create_queue = failing
    client = world.pair(secondary_admin=admin, backlog_queue_count=3)

    paths = [status.path for status in client.status().backlog_queues]
    assert paths == ["contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/2"]


def test_pairing_fails_when_no_queue_can_be_had_and_can_be_repeated(world):
    primary, secondary = world.primary_client(), world.secondary_client()
    admin = world.secondary.admin_client(retry_total=0)
    world.admins.append(admin)
    world.secondary.stop()
    with pytest.raises(PairingError, match="No backlog queue can be used"):
        world.pair(primary, secondary, secondary_admin=admin, send_timeout=2)

    world.secondary.start()
    client = world.pair(primary, secondary)
    assert client.status().state == "open"


def test_credentials_that_may_not_create_queues_are_refused_clearly(world):
    from pairbus.administration import admin_client

    wrong = world.secondary.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    admin = admin_client(wrong)
    world.admins.append(admin)

    with pytest.raises(PairingError, match="right Manage") as caught:
        world.pair(secondary_admin=admin)

    assert "SharedAccess" not in str(caught.value)
    assert names(world) == []


def test_clients_that_cannot_be_a_pair_are_refused(world):
    primary, secondary = world.primary_client(), world.secondary_client()
    with pytest.raises(PairingError, match="same namespace"):
        world.pair(primary, world.primary_client())
    client = world.pair(primary, secondary)

    with pytest.raises(PairingError, match="paired already"):
        world.pair(primary, world.secondary_client())
    with pytest.raises(PairingError, match="paired already"):
        world.pair(client, world.secondary_client())
    with pytest.raises(PairingError, match="itself paired"):
        world.pair(world.secondary_client(), primary)
    with pytest.raises(PairingError, match="itself paired"):
        world.pair(world.secondary_client(), client)
    with pytest.raises(PairingError, match="secondary of another"):
        world.pair(world.primary_client(), secondary)
    with pytest.raises(PairingError, match="secondary of another"):
        world.pair(secondary, world.primary_client())
    with pytest.raises(PairingError, match="secondary of another"):
        world.pair(world.primary_client(), client.secondary)
    # Two primaries may share one secondary namespace, by clients of their own.
    world.pair(primary_namespace="fabrikam")
    assert len(names(world)) == 4

    # Once closed, the clients are free again.
    client.close()
    world.pair(primary, secondary)


def test_host_that_is_an_address_needs_a_name(world):
    with pytest.raises(PairingError, match="primary_namespace"):
        world.pair(primary_namespace=None)
    assert names(world) == []


def test_namespace_is_the_first_label_of_the_primarys_host(world):
    primary = ServiceBusClient(
        "Fabrikam.servicebus.windows.net", AzureNamedKeyCredential("name", "key")
    )

    client = world.pair(primary, primary_namespace=None, backlog_queue_count=1)

    assert names(world) == ["fabrikam/x-servicebus-transfer/0"]
    assert client.status().primary_namespace == "fabrikam"


def test_options_of_the_wrong_kind_are_refused_by_name(world):
    primary = world.primary_client()
    with pytest.raises(TypeError, match=r"options must be .*, got builtins.dict"):
        pair_namespace(primary, {"secondary": "Endpoint=sb://secret"})
    with pytest.raises(TypeError, match=r"options must be .*, got azure\.servicebus"):
        pair_namespace(primary, primary)


def test_clients_of_the_wrong_kind_are_refused_by_name(world):
    with pytest.raises(TypeError, match="primary must be"):
        world.pair("Endpoint=sb://secret")
    with pytest.raises(TypeError, match="secondary_admin must be"):
        world.pair(secondary_admin=object())
    with pytest.raises(TypeError, match="secondary must be"):
        pair_namespace(world.primary_client(), world.options(object()))


def test_repr_and_status_show_no_secret(world):
    client = world.pair()

    for shown in (
        repr(client),
        repr(client.secondary),
        repr(client.status()),
        repr(world.options()),
    ):
        assert "SAS_KEY_VALUE" not in shown
    assert isinstance(client, PairedClient)


def test_syphon_that_cannot_start_is_a_clear_error_and_nothing_is_half_done(world):
    primary, secondary = world.primary_client(), world.secondary_client()
    bad = SyphonOptions(primary="NO_SUCH_VARIABLE_HERE", secondary="NOR_THIS")

    with pytest.raises((PairingError, ValueError)):
        world.pair(primary, secondary, enable_syphon=True, syphon=bad)

    world.pair(primary, secondary)


@pytest.mark.parametrize(
    ("package", "extra", "options"),
    [
        ("pyarrow", "ledger", {"ledger": "ledger"}),
        ("pyspark", "spark", {"enable_syphon": True, "syphon": SYPHON}),
    ],
)
def test_missing_extra_is_named_before_anything_is_done_even_while_the_secondary_is_down(
    world, monkeypatch, tmp_path, package, extra, options
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    primary, secondary = world.primary_client(), world.secondary_client()
    world.secondary.stop()

    with pytest.raises(PairingError, match=rf"pip install 'pairbus\[{extra}\]'"):
        world.pair(primary, secondary, **options)

    world.secondary.start()
    world.pair(primary, secondary)
    assert not list(tmp_path.iterdir())


def test_receiver_of_the_secondary_is_the_sdks_own(world):
    client = world.pair()
    client.force_failover("orders")
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a"))
    path = client.status().entity("orders").backlog_queue

    with client.secondary as secondary:
        receiver = secondary.get_queue_receiver(path, max_wait_time=5)
        with receiver:
            [found] = receiver.receive_messages()
            assert found.application_properties == {b"x-ms-path": b"orders"}


def test_unreachable_secondary_is_told_without_asking_for_every_queue(world, caplog):
    """The SDK tries for seconds before it gives a call up: ten queues would take a minute."""
    admin = world.secondary.admin_client(retry_total=0)
    world.admins.append(admin)
    world.secondary.kill()

    with (
        caplog.at_level(logging.INFO, "pairbus.backlog"),
        pytest.raises(PairingError, match="No backlog queue can be used"),
    ):
        world.pair(secondary_admin=admin, backlog_queue_count=10)

    assert caplog.text.count("cannot be used") == 2


def test_connection_string_of_one_entity_can_be_paired(world):
    text = f"{world.primary.connection_string};EntityPath=orders"

    client = world.pair(world.primary_client(text))
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("one"))

    assert world.bodies(world.primary, "orders") == [b"one"]
