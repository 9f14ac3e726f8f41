"""The backlog queues are discovered, whatever their number."""

import pytest
from azure.servicebus.management import AccessRights, AuthorizationRule

from pairbus import broker
from pairbus.client.errors import AuthenticationError
from pairbus.exceptions import SyphonError
from pairbus.options import SyphonOptions
from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.connections import check_access
from pairbus.syphon.queue_counter import QueueCounter
from pairbus.syphon.setup import Setup
from pairbus.syphon.target import Target

PATHS = [f"contoso/x-servicebus-transfer/{number}" for number in (0, 2, 10, 11)]


@pytest.fixture(scope="module")
def secondary():
    with broker.run("contoso-dr") as namespace:
        for path in [*PATHS, "fabrikam/x-servicebus-transfer/0", "orders"]:
            namespace.create_queue(path)
        yield namespace


def counter_of(secondary, tmp_path, name="contoso", connection_string=None, **more):
    options = SyphonOptions(
        primary="Endpoint=sb://contoso.example/;SharedAccessKeyName=a;SharedAccessKey=b",
        secondary=connection_string or secondary.connection_string,
        primary_namespace=name,
        checkpoint=str(tmp_path),
        **more,
    )
    calls = []
    return QueueCounter(Setup.of(options), calls.append), calls


def test_the_queues_of_the_pair_are_found_in_the_order_of_their_numbers(secondary, tmp_path):
    counter, calls = counter_of(secondary, tmp_path)
    counts = counter.check()
    assert [queue.path for queue in counts] == PATHS
    assert len(calls) == 1 + len(PATHS)  # one listing, and one call for each queue that exists
    counter.close()


def test_a_pair_without_backlog_queues_is_an_error(secondary, tmp_path):
    counter, _ = counter_of(secondary, tmp_path, "adatum")
    with pytest.raises(SyphonError, match="there are no backlog queues adatum/"):
        counter.check()
    counter.close()


def no_credential():
    raise ValueError("a secret of the credential")


def test_a_credential_that_fails_at_the_start_is_reported_in_one_line(secondary, tmp_path):
    host, credential = f"127.0.0.1:{secondary.port}", f"{__name__}:no_credential"
    counter, _ = counter_of(secondary, tmp_path, connection_string=credential, secondary_host=host)
    with pytest.raises(SyphonError) as caught:
        counter.check()
    assert str(caught.value) == f"secondary {host}: the credential failed: ValueError"


def key_of_one_queue(namespace, path, *, entity_path=True):
    """The connection string of a key that only this queue has."""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        rights=[AccessRights.LISTEN, AccessRights.SEND],
        key_name="own",
        primary_key="b25seSB0aGlzIHF1ZXVl",
    )
    with namespace.admin_client() as admin:
        admin.create_queue(path, authorization_rules=[rule])
    parts = namespace.connection_string.rstrip(";").split(";")
    kept = [part for part in parts if not part.startswith("SharedAccess")]
    own = [*kept, "SharedAccessKeyName=own", "SharedAccessKey=b25seSB0aGlzIHF1ZXVl"]
    return ";".join([*own, f"EntityPath={path}"] if entity_path else own)


def test_a_key_of_one_queue_is_accepted_with_its_entity_path(secondary):
    text = key_of_one_queue(secondary, "invoices")
    assert check_access(ThreadRuntime(), Target(text), "$management") is None


def test_a_key_of_one_queue_without_its_entity_path_is_refused(secondary):
    text = key_of_one_queue(secondary, "shipments", entity_path=False)
    refusal = check_access(ThreadRuntime(), Target(text), "$management")
    assert isinstance(refusal, AuthenticationError)


def test_a_key_of_one_backlog_queue_reads_that_queue_alone(secondary, tmp_path):
    path = "adventure/x-servicebus-transfer/0"
    text = key_of_one_queue(secondary, path)
    counter, calls = counter_of(secondary, tmp_path, "adventure", text, backlog_queue_count=1)
    assert counter.check() is None
    assert calls == []
    counter, _ = counter_of(secondary, tmp_path, "adventure", text)
    with pytest.raises(SyphonError, match=rf"the key is of the queue {path} alone \(EntityPath\)"):
        counter.check()
