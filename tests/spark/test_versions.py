"""The older Spark that is supported does everything that the newer one does, with the same results.

./run-tests -m soak tests/spark/test_versions.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.spark.every_pipeline import STEPS
from tests.spark.partitions import Partition, steady
from tests.support.spark_release import OLDER_SPARK, SparkUnavailableError, older_spark

ROOT = Path(__file__).parents[2]


def run(module: str, argument: str, environment: Mapping[str, str]) -> Any:
    """What the program prints last."""
    done = subprocess.run(
        [sys.executable, "-m", module, argument],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


def everything(directory: Path, environment: Mapping[str, str]) -> Any:
    bucket = directory.with_name(f"{directory.name}-bucket")
    bucket.mkdir()
    properties = {
        "spark.master": "local[2]",
        "spark.driver.memory": "600m",
        "spark.sql.shuffle.partitions": 2,
    }
    settings = {
        "directory": str(directory),
        "remote": bucket.as_uri(),
        "options": {},
        "properties": properties,
    }
    return run("tests.spark.every_pipeline", json.dumps(settings), environment)


def connected(directory: Path, environment: Mapping[str, str]) -> Any:
    Partition(directory / "data").segment(steady(4))
    return run("tests.spark.connect_child", str(directory), environment)


@pytest.fixture(scope="module")
def older() -> Mapping[str, str]:
    """The environment of a Python that has the older Spark."""
    try:
        return older_spark().environment(ROOT / "src")
    except SparkUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_results_are_those_of_the_newer_spark(tmp_path: Path, older: Mapping[str, str]) -> None:
    """Filters and columns are pushed down and scans are by columns in both."""
    before = everything(tmp_path / "older", older)
    now = everything(tmp_path / "newer", os.environ)
    assert (before["spark"], now["spark"]) == (OLDER_SPARK, pyspark.__version__)
    assert before["pushed down"] is before["columnar"] is now["pushed down"] is now["columnar"] is True
    assert list(now["found"]) == list(STEPS)
    for name, expected in now["found"].items():
        assert before["found"][name] == expected, name


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_so_are_those_of_spark_connect(tmp_path: Path, older: Mapping[str, str]) -> None:
    pytest.importorskip("grpc", reason="Spark Connect is not installed (stratalog[connect])")
    assert connected(tmp_path / "older", older) == connected(tmp_path / "newer", os.environ)
