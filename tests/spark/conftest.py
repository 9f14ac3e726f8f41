"""One Spark session for all Spark tests of a process."""

import pytest

# The tests' data is tiny: compiling each query would take longer than running it.
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # What they show is searched for secrets.
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pairbus.spark.session import get_session

    logs = tmp_path_factory.mktemp("event-logs")
    config = {**SETTINGS, "spark.eventLog.dir": f"file:{logs}"}
    session = get_session("local[2,4]", "pairbus-tests", config=config)
    yield session
    session.stop()
