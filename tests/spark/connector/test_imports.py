"""What each process imports: executors work without azure-servicebus, the syphon without Spark."""

import subprocess
import sys

import pytest

BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
for name in sys.argv[2:]:
    __import__(name)
"""
EXECUTOR = ["pairbus.spark.source", "pairbus.spark.sink", "pairbus.spark.executor"]
SYPHON = [
    "pairbus.syphon._sync.coordinator", "pairbus.syphon._sync.deliverer",
    "pairbus.syphon._sync.reader", "pairbus.syphon._async.coordinator",
    "pairbus.syphon.rows", "pairbus.syphon.setup", "pairbus.syphon.status_monitor",
]  # fmt: skip


@pytest.mark.parametrize(
    ("blocked", "modules"),
    [("azure", [*EXECUTOR, "pairbus.ledger.receipts"]), ("pyspark", SYPHON)],
    ids=["executors-without-azure", "syphon-without-pyspark"],
)
def test_modules_import_without(blocked, modules):
    subprocess.run([sys.executable, "-c", BLOCK, blocked, *modules], check=True)
