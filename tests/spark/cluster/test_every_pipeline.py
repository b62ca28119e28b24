"""Spark's own standalone cluster of two workers runs everything, with the results of `local[2]`; executors may die.

./run-tests -m soak tests/spark/cluster
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.spark.every_pipeline import STEPS
from tests.support.s3_server import S3Server, require_s3_server
from tests.support.spark_cluster import SparkCluster

ROOT = Path(__file__).parents[3]


def drive(directory: Path, s3: S3Server, master: str, workers: Sequence[int] = ()) -> Any:
    settings = {
        "directory": str(directory),
        "remote": s3.url(f"bucket/{directory.name}"),
        "options": s3.options,
        "workers": list(workers),
        "properties": {
            "spark.master": master,
            "spark.driver.memory": "600m",
            "spark.executor.memory": "600m",
            "spark.sql.shuffle.partitions": 2,
            "spark.executorEnv.PYTHONPATH": str(ROOT),
        },
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster.driver", json.dumps(settings)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_workers_do_what_one_process_does(tmp_path: Path) -> None:
    """Each step has the result of a session without a cluster, two of them although an executor died in the middle."""
    require_s3_server()
    place = SparkCluster(tmp_path / "cluster", workers=2, memory="700m")
    with S3Server(tmp_path / "s3") as s3, place as cluster, ThreadPoolExecutor() as both:
        workers = [worker.pid for worker in cluster.workers]
        local = both.submit(drive, tmp_path / "alone", s3, "local[2]")
        together = drive(tmp_path / "together", s3, cluster.url, workers)
        alone = local.result()
    assert (alone["killed"], together["killed"]) == (0, 2)
    assert together["under way"] == {"write": True, "compaction": True}
    for name, expected in alone["found"].items():
        assert together["found"][name] == expected, name
    assert set(alone["found"]) == {*STEPS, "write with a loss", "compaction with a loss"}
    rows, findings = alone["found"]["write with a loss"]
    assert sorted(int(row[4].rstrip(".")) for row in rows) == list(range(4000))
    assert findings == []
    _, rows, findings = alone["found"]["compaction with a loss"]
    assert len({(row[0], row[3]) for row in rows}) == len(rows) == 6 * 700
    assert findings == []
