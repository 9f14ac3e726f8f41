"""What all tests share."""

import contextlib
import importlib.util
import logging
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell starts a background job with SIGINT ignored, and its children inherit that: tests that end
# a process with SIGINT would wait forever. A handler, unlike SIG_IGN, is reset when a child starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # likewise under `nohup`
    signal.signal(signal.SIGHUP, lambda *_: None)

# Machines that run the tests are shared and noisy: a slow example is no failure, and the same
# examples come every time, so that a red run can be run again.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption(
        "--target",
        choices=["embedded", "emulator", "live"],
        default="embedded",
        help="where tests/conformance runs: the embedded broker, Microsoft's emulator, Azure",
    )


# Most tests want a broker that neither throttles nor refuses large messages. The tests of the
# Standard tier, which is the default of users, ask for it.
os.environ.setdefault("PAIRBUS_BROKER_TIER", "premium")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that start Spark in processes of their own, and run them last.

    Tests that share a session come first, so that its Java ends before others start.
    """
    for item in items:
        if item.get_closest_marker("spark") and "spark" not in item.fixturenames:
            item.add_marker("own_spark")
    items.sort(key=lambda item: item.get_closest_marker("own_spark") is not None)


@pytest.fixture(scope="session", autouse=True)
def quick_spark(tmp_path_factory):
    """Spark that starts quicker, also where a test starts it in a process of its own.

    Its Python processes import pyspark from a zip file without compiled modules, which takes three
    times as long as from where it is installed: a home without that file makes them do so. And
    what runs for seconds is not worth the better of Java's two compilers.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        yield
        return
    home = tmp_path_factory.mktemp("spark-home")
    for path in Path(found.submodule_search_locations[0]).iterdir():
        if path.name in ("bin", "sbin", "jars"):
            (home / path.name).symlink_to(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        # Java and Spark's workers get the environment of Java's start, whichever test that is.
        patch.setenv("PAIRBUS_TEST_CREDENTIALS", str(tmp_path_factory.mktemp("credentials")))
        yield


class ObjectStore:
    """A bucket in a server on loopback that speaks S3, and its address as a location spells it."""

    def __init__(self, port):
        self.address = f"127.0.0.1:{port}"
        self.forget_everything()  # all servers of a process share their objects
        self.make_bucket()

    def make_bucket(self):
        import httpx

        assert httpx.put(f"http://{self.address}/books", timeout=60).status_code == 200

    def forget_everything(self):
        """The bucket and all in it are gone."""
        import httpx

        assert httpx.post(f"http://{self.address}/moto-api/reset", timeout=60).status_code == 200

    def location(self, folder):
        """A URL with everything that pyarrow needs; in life most of it is in the environment."""
        where = f"scheme=http&region=us-east-1&endpoint_override={self.address}"
        return f"s3://key:secret-of-the-store@books/{folder}?{where}"


@contextlib.contextmanager
def serving(port=0):
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        yield ObjectStore(server.get_host_and_port()[1])
    finally:
        server.stop()


@pytest.fixture
def object_store():
    with serving() as store:
        yield store
