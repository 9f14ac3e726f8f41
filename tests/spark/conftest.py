"""One Spark session for all Spark tests of a process."""

import pytest


@pytest.fixture(scope="session")
def spark():
    from pairbus.spark.session import get_session

    session = get_session("local[2]", "pairbus-tests", config={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
