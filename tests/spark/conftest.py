"""One Spark session for all tests, and one S3 server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stratalog.spark
from tests.support.s3_server import S3Server, require_s3_server


@pytest.fixture(scope="session")
def jvm_stderr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the session's JVM and its Python workers print on standard error, all tests together."""
    return tmp_path_factory.mktemp("jvm") / "stderr"


@pytest.fixture(scope="session")
def spark(jvm_stderr: Path) -> Iterator[SparkSession]:
    with stderr_to(jvm_stderr):
        conf: dict[str, Any] = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": 2}
        session = stratalog.spark.local_session("stratalog tests", **conf)
    yield session
    session.stop()
    print(jvm_stderr.read_text(), file=sys.stderr)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Processes that are started within the block have this file as their standard error."""
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """For tests that write below a bucket or prefix of their own."""
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server
