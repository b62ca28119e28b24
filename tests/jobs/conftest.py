"""Every job runs on both executors, and gives the same."""

from __future__ import annotations

import pytest

from stratalog.jobs.executor import Exchanger, Threads
from stratalog.spark import SparkExecutor
from tests.spark.conftest import jvm_stderr, spark

__all__ = ["executor", "jvm_stderr", "spark"]


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.spark)])
def executor(request: pytest.FixtureRequest) -> Exchanger:
    if request.param == "threads":
        return Threads(4)
    return SparkExecutor(request.getfixturevalue("spark"))
