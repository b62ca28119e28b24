"""Exports into Delta and Iceberg tables, and of Avro values, with the newest Spark that the engines have releases
for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_release import ENGINES_SPARK, SparkUnavailableError, spark_with_engines

ROOT = Path(__file__).parents[3]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.interop
def test_the_engines_tables_get_each_record_once(tmp_path: Path) -> None:
    """A run that dies after its commit, one after the engine forgot its commits, and a schema that grows."""
    try:
        release = spark_with_engines()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "tests.spark.export.engines_child", str(tmp_path)]
    done = subprocess.run(
        [*command, *map(str, release.jars)],
        env=release.environment(ROOT),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spark"] == ENGINES_SPARK
    one_of_two = ["10", ["refused"]]
    overlapping = {
        "delta": [*one_of_two, ["10", "refused"], 20],
        "iceberg": [*one_of_two, *one_of_two, ["10", "refused"], "10", 40, ["main"]],
    }
    for kind, expected in overlapping.items():
        assert found[kind].pop("overlapping") == expected
        assert found[kind] == {
            "first": [41, 1, True, True],
            "nothing new": 0,
            "died": 50,
            "after death": 0,
            "grown": 1,
            "offsets": list(range(51)),
            "grown value": 7,
            "days": 4,
            "property": {"delta": 71, "iceberg": 91}[kind],
        }
    plain, framed = found["avro"]
    assert plain == [[[3, "x"], None], [[None, None], None], [None, "02"], [None, ""], [None, None]]
    assert framed == [[[3, "x"], None], [None, "0000000008020600" + "0278"], [None, "01" + "0206000278" * 2]]
