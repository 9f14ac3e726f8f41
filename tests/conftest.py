"""What all tests share."""

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run the tests are shared and noisy: a slow example is no failure, and the same
# examples come every time, so that a red run can be run again.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


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
        yield
