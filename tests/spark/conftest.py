"""One Spark session for all Spark tests of a process."""

import pytest

# The tests' data is tiny: compiling each query would take longer than running it.
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark():
    from pairbus.spark.session import get_session

    session = get_session("local[2,4]", "pairbus-tests", config=SETTINGS)
    yield session
    session.stop()
