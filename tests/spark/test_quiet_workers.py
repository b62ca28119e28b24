"""Python workers that Spark no longer needs end without output, whatever they did."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stratalog.spark
from stratalog.spark.pipelines.stats import stats
from tests.spark.partitions import Partition, steady

pytestmark = pytest.mark.spark

#: What Spark calls for workers that nothing asked for during a minute.
_CLEAN_UP = "org$apache$spark$api$python$PythonWorkerFactory$$cleanupIdleWorkers"


def idle_workers(spark: SparkSession) -> dict[str, Any]:
    """By their main module, what starts the workers of a kind in the session's JVM; Spark keeps them to itself."""
    context: Any = spark.sparkContext
    jvm: Any = spark._jvm
    field = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("pythonWorkers")
    field.setAccessible(True)
    entries, found = field.get(context._jsc.sc().env()).iterator(), {}
    while entries.hasNext():
        entry = entries.next()
        found[str(entry._1().workerModule())] = entry._2()
    return found


def children(pid: int) -> set[int]:
    return {int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()}


def test_workers_that_idle_leave_without_a_word(spark: SparkSession, jvm_stderr: Path, tmp_path: Path) -> None:
    """After a read with a filter, a write and a pipeline: planners, tasks and what Spark looks up."""
    before = jvm_stderr.stat().st_size
    partition = Partition(tmp_path / "data")
    partition.segment(steady(5))
    records = spark.read.format("stratalog").options(path=str(partition.root), subscribe="orders").load()
    assert records.where("offset > 3").count() == len(partition.records) - 4
    (tmp_path / "copy").mkdir()
    stratalog.spark.write(records.select("value"), path=tmp_path / "copy", topic="copy", partitions=1)
    assert len(stats(spark, paths=[tmp_path / "copy"]).segments) == 1
    kinds = idle_workers(spark)
    assert {
        "pyspark.worker",
        *(
            f"pyspark.sql.worker.{name}"
            for name in (
                "create_data_source",
                "data_source_pushdown_filters",
                "lookup_data_sources",
                "write_into_data_source",
            )
        ),
    } <= kinds.keys()

    jvm: Any = spark._jvm
    daemons = children(int(jvm.java.lang.ProcessHandle.current().pid()))
    workers = {worker for daemon in daemons for worker in children(daemon)}
    assert workers  # as far as they have not left already
    for each in kinds.values():
        getattr(each, _CLEAN_UP)()
    for _ in range(100):  # those that earlier tests keep busy stay
        if not any(Path(f"/proc/{worker}").exists() for worker in workers):
            break
        time.sleep(0.05)
    time.sleep(0.5)  # what a worker prints goes through a pipe and the JVM
    assert jvm_stderr.read_bytes()[before:].decode() == ""
