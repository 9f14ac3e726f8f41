"""Import paths of version 0.1 work, with a warning that names the new one."""

import importlib
import importlib.util
import subprocess
import sys

import pytest

from pairbus._moved import MOVED, RENAMED

# What the README, the documentation and the examples of version 0.1 name.
DOCUMENTED = {
    "pairbus.amqp": ["Connection", "Message", "Properties", "Role", "decode", "encode"],
    "pairbus.amqp.performatives": ["Target"],
    "pairbus.amqp.types": ["Symbol", "UInt"],
    "pairbus.broker": [
        "BrokerSettings", "BrokerStartError", "Fault", "Faults", "Limits", "RunningNamespace",
        "run",
    ],
    "pairbus.broker.clients": ["admin_client", "aio_admin_client"],
    "pairbus.broker.credentials": [
        "OWNER", "RECEIVER", "SENDER", "AioBrokerCredential", "BrokerCredential",
    ],
    "pairbus.classify": ["TABLE", "Verdict", "classify"],
    "pairbus.core.health": ["Health", "Phase", "resume", "step"],
    "pairbus.core.ping": ["PING_CONTENT_TYPE", "PING_TIME_TO_LIVE", "PingSchedule"],
    "pairbus.core.pricing": ["STEP", "PriceList", "Rules", "billable", "parse_prices"],
    "pairbus.core.rotation": ["Rotation", "backlog_path", "backlog_paths"],
    "pairbus.core.syphon_prefix": ["Head", "Place", "Prefixes"],
    "pairbus.envelope": ["ALIASES", "PATH", "SESSION_ID", "TIME_TO_LIVE", "check_reserved"],
    "pairbus.events": ["Event", "FailedOver", "MessageBacklogged", "PingSent", "Restored"],
    "pairbus.exceptions": ["PairingError", "PairUnavailableError", "SyphonError"],
    "pairbus.lean": [
        "NEXT_SESSION", "AuthenticationError", "BatchOutcome", "ConnectionLostError",
        "LeanConnection", "LeanError", "LeanManagement", "LeanReceiver", "LeanSender",
        "LinkDetachedError", "Mode", "OperationTimeoutError", "Posted", "Received",
        "RejectedError", "RequestFailedError", "SasKey", "SasToken", "dead_letter",
    ],
    "pairbus.ledger": ["LedgerError", "LedgerWriter", "Store", "probe", "write_receipts"],
    "pairbus.ledger.prices": ["load_prices"],
    "pairbus.metrics": ["PrometheusObserver"],
    "pairbus.options": ["SendAvailabilityPairedNamespaceOptions", "SyphonOptions"],
    "pairbus.spark.books": ["Books", "balance"],
    "pairbus.spark.live": ["CostWatch", "LiveCost"],
    "pairbus.spark.report": ["CostReport", "cost_report"],
    "pairbus.spark.session": ["get_session"],
    "pairbus.spark.source": ["ServiceBusSource"],
    "pairbus.spark.syphon": ["Bounds", "SyphonHandle", "start_syphon"],
    "pairbus.status": ["BacklogQueueStatus", "EntityStatus", "PairStatus"],
    "pairbus.testing": ["FakeClock", "FaultProxy", "RunningNamespace", "pair_options", "run"],
    "pairbus.tracing": ["OpenTelemetryObserver"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def forget():
    """Each test imports the old modules as if for the first time."""
    yield
    for name in MOVED:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("old", sorted(MOVED))
def test_old_module_is_imported_with_a_warning_that_names_the_new_one(old):
    sys.modules.pop(old, None)
    parent = old.rpartition(".")[0]
    if parent in MOVED:
        with pytest.warns(DeprecationWarning, match=parent):
            importlib.import_module(parent)
    with pytest.warns(DeprecationWarning, match=f"{old} is {MOVED[old]};"):
        module = importlib.import_module(old)
    assert set(dir(importlib.import_module(MOVED[old]))) == set(dir(module))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("old", sorted(RENAMED))
def test_old_name_is_found_under_its_new_one(old):
    module, _, name = old.rpartition(".")
    place, _, new = RENAMED[old].rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert found is getattr(importlib.import_module(place), new)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("module", sorted(DOCUMENTED))
def test_documented_names_of_version_0_1_are_still_there(module):
    found = importlib.import_module(module)
    missing = [name for name in DOCUMENTED[module] if not hasattr(found, name)]
    assert missing == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_real_module_hides_behind_the_table():
    assert [name for name in MOVED if _is_real(name)] == []


def _is_real(name):
    parent = name.rpartition(".")[0]
    paths = getattr(importlib.import_module(parent), "__path__", [])
    finder = importlib.machinery.PathFinder
    return finder.find_spec(name, list(paths)) is not None


def test_warning_points_at_the_line_that_imports(tmp_path):
    script = tmp_path / "application.py"
    script.write_text("import sys\nfrom pairbus.lean import LeanConnection\n")
    done = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", str(script)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"{script}:2: DeprecationWarning: pairbus.lean is pairbus.client" in done.stderr


def test_name_that_moved_out_of_a_module_warns():
    import pairbus.envelope

    with pytest.warns(DeprecationWarning, match="is pairbus.envelope.fields.PATH"):
        assert pairbus.envelope.PATH == "x-ms-path"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pairbus.envelope.nothing


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_name_that_never_was_is_an_attribute_error():
    old = importlib.import_module("pairbus.lean")
    with pytest.raises(AttributeError, match=r"module 'pairbus.lean' has no attribute 'nothing'"):
        _ = old.nothing
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pairbus.lean.nothing")
