"""Exports whose process is killed with SIGKILL: the next run makes the table whole, with each record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.spark.export import export, read_table
from tests.spark.partitions import Partition, steady

ROOT = Path(__file__).parents[3]
DAY_MS = 86_400_000


def start(data: Path, table: Path, when: str) -> subprocess.Popen[bytes]:
    """In a process group of its own, so that all of it can be killed."""
    module = "tests.spark.export.killed_child"
    command = [sys.executable, "-m", module, str(data), str(table), when]
    return subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill_when_files_are_there(child: subprocess.Popen[bytes], table: Path, count: int) -> None:
    while len(list(table.glob("date=*/*.parquet"))) < count:
        assert child.poll() is None, "the export ended before it was killed"
    os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_an_export_that_is_killed_at_any_step_exports_each_record_once(tmp_path: Path, spark: SparkSession) -> None:
    data, table = tmp_path / "data", tmp_path / "table"
    partitions = [Partition(data, number=number) for number in range(2)]
    for partition in partitions:
        partition.segment(steady(60, step_ms=DAY_MS))  # 300 days: so many files that it takes its time

    child = start(data, table, "never")
    kill_when_files_are_there(child, table, 20)
    assert child.wait() == -signal.SIGKILL
    assert list(table.glob("date=*/*.parquet"))
    assert not list((table / "_stratalog/commits").glob("*.json")), "it was to die before its commit"

    assert start(data, table, "before-commit").wait() == -signal.SIGKILL
    assert len(list(table.glob("date=*/*.parquet"))) >= 300
    assert start(data, table, "after-commit").wait() == -signal.SIGKILL
    assert len(read_table(spark, str(table)).select("offset").collect()) == 600

    partitions[0].segment(steady(2))
    export(spark, source={"path": str(data), "subscribe": "orders"}, to=str(table))
    expected = sorted((each.number, record.offset) for each in partitions for record in each.records)
    for found in (read_table(spark, str(table)), spark.read.parquet(str(table))):
        assert sorted((row.partition, row.offset) for row in found.select("partition", "offset").collect()) == expected
    assert not [path for path in table.rglob(".*") if path.is_file() and not path.name.endswith(".crc")]
