"""One Spark session for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import stratalog.spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = stratalog.spark.local_session(
        "stratalog tests", **{"spark.master": "local[2]", "spark.sql.shuffle.partitions": 2}
    )
    yield session
    session.stop()
