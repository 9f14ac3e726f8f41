"""The syphon over TLS, with credentials whose tokens expire; and no secret is seen anywhere."""

import os
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from pairbus import broker
from tests.spark.syphon import credentials
from tests.syphon.conftest import Pair, backlog_message, make_queues

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]
KEYS = {"primary": "UHJpbWFyeUtleU9mVGhpc1Rlc3Q=", "secondary": "U2Vjb25kYXJ5S2V5T2ZUaGlzVGVzdA=="}
BODY = "what-nobody-but-the-receiver-may-read"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secure")
    with (
        broker.run("contoso", key=KEYS["primary"]) as primary,
        broker.run("contoso-dr", key=KEYS["secondary"]) as secondary,
    ):
        make_queues(secondary, 2)
        primary.create_queue("orders")
        trusted = folder / "trusted.pem"
        trusted.write_text(
            "".join(Path(side.certificate).read_text() for side in (primary, secondary))
        )
        pair = Pair(primary, secondary, 2, folder)
        yield pair
        pair.close()


def by_tls(pair, **changes):
    return pair.options(
        primary=f"{credentials.__name__}:primary",
        secondary=f"{credentials.__name__}:secondary",
        primary_host=f"127.0.0.1:{pair.primary.port}",
        secondary_host=f"127.0.0.1:{pair.secondary.port}",
        ca_file=str(pair.folder / "trusted.pem"),
        **changes,
    )


def tokens():
    """How often each of Spark's processes asked for a token."""
    told = (Path(os.environ[credentials.FOLDER]) / "tokens").read_text().split()
    return Counter(pid for pid in told if pid != str(os.getpid()))


def messages(first, count):
    return [backlog_message("orders", n, body=BODY.encode()) for n in range(first, first + count)]


@pytest.fixture(scope="module")
def drained(pair, spark, capfd_of_module):
    """A drain by TLS and credentials, and one by connection strings; what they printed."""
    from pairbus.spark.syphon import Bounds, start_syphon

    for side, key in KEYS.items():
        (Path(os.environ[credentials.FOLDER]) / side).write_text(key)
    pair.fill(messages(0, 20))
    syphon = start_syphon(by_tls(pair, long_poll=2), spark=spark)
    first = pair.numbers("orders", 20)
    # The doorbell polls its two queues and renews; the tokens of the others run out meanwhile.
    deadline = time.monotonic() + 60
    while max(tokens().values()) < 8:
        assert time.monotonic() < deadline, tokens()
        time.sleep(0.1)
    pair.fill(messages(20, 20))
    second = pair.numbers("orders", 20)
    syphon._query.explain(extended=True)  # noqa: SLF001 - the plan of the running query
    status = syphon.status()
    syphon.stop()
    pair.fill(messages(40, 20))
    options = pair.options(checkpoint=str(pair.folder / "by-string"))
    syphon = start_syphon(options, spark=spark, bounds=Bounds(until_empty=True))
    syphon._query.explain(extended=True)  # noqa: SLF001 - the plan of the running query
    assert syphon.wait(120)
    return first, second, pair.numbers("orders", 20), status


@pytest.fixture(scope="module")
def capfd_of_module(tmp_path_factory):
    """All that this process and its children write, while the module's drains run."""
    path = tmp_path_factory.mktemp("output") / "all"
    kept = [os.dup(1), os.dup(2)]
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    yield path
    for number, old in enumerate(kept, 1):
        os.dup2(old, number)
        os.close(old)


def test_a_backlog_comes_home_over_tls_with_tokens_that_are_renewed(drained):
    first, second, third, status = drained
    assert first == list(range(20))
    assert second == list(range(20, 40))
    assert third == list(range(40, 60))
    assert status["stalled"] is None
    assert status["remaining"] is not None  # its administration let the credential in too


def test_no_key_token_or_body_is_seen_anywhere(pair, drained, spark, capfd_of_module):
    seen = {str(capfd_of_module): capfd_of_module.read_bytes()}
    context = spark.sparkContext
    logs = context.getConf().get("spark.eventLog.dir").removeprefix("file:")
    for root in (logs, pair.folder):
        for path in Path(root).rglob("*"):
            if path.is_file():
                seen[str(path)] = path.read_bytes()
    api = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    pages = [f"{api}/{name}" for name in ("sql?details=true&length=1000", "jobs", "environment")]
    pages += [f"{context.uiWebUrl}/{name}/" for name in ("StreamingQuery", "SQL", "environment")]
    for page in pages:
        with urllib.request.urlopen(page) as answer:
            seen[page] = answer.read()
    plans = seen[pages[0]] + seen[str(capfd_of_module)]
    assert b"servicebus" in plans  # we look where something would be
    assert any(b"SparkListenerSQLExecutionStart" in data for data in seen.values())
    secrets = [*KEYS.values(), "sig=", "eyJhbGciOi", BODY]
    found = [(where, secret) for where, data in seen.items() for secret in secrets
             if secret.encode() in data]  # fmt: skip
    assert not found
