"""Jobs that lose an executor on the way, and the same jobs left alone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import stratalog.spark
from stratalog.config.topic import LogConfig
from stratalog.jobs.audit.run import audit
from stratalog.jobs.compaction.run import compact_bucket
from stratalog.log.partition_log import PartitionLog
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark import SparkExecutor
from tests.jobs.compaction.lives import upload, write_log
from tests.spark.every_pipeline import COMPACTED, facts, gains

_EXECUTOR = b"CoarseGrainedExecutorBackend"
_WAIT_SECONDS = 240
TOPICS = tuple(f"topic{number}" for number in range(6))

#: What makes an executor die; it is called once a job, in the middle.
Lose = Callable[[], None]


def executors(workers: Sequence[int]) -> list[int]:
    """The pids of executors, as the workers have them for children."""
    found = []
    for worker in workers:
        for task in Path(f"/proc/{worker}/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return sorted(found)


def killer(workers: Sequence[int], killed: list[int]) -> Lose:
    """Kills an executor each time, and notes which one."""

    def lose() -> None:
        pid = executors(workers)[0]
        os.kill(pid, signal.SIGKILL)  # the worker will start another one
        killed.append(pid)

    return lose


class _HeldRows:
    """Lets the first batches of a task pass, and the others when `gate` is there."""

    def __init__(self, gate: str) -> None:
        self._gate = gate

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            while number >= 6 and not os.path.exists(self._gate):
                time.sleep(0.05)
            yield batch


def write_in_bulk(spark: SparkSession, directory: Path, lose: Lose | None) -> Any:
    """4000 records in four tasks; the executor dies when objects of tasks that are under way are in the bucket.

    A task that sorts by time stages a segment whenever it has enough for one; others collect more at a time.
    """
    bucket, gate = directory / "lossy", directory / "gate"
    bucket.mkdir()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    rows = (
        spark.range(0, 4000, 1, 4)
        .selectExpr(
            "string(id % 90) key", "rpad(string(id), 1000, '.') value", "timestamp_millis(1700000000000 + id) timestamp"
        )
        .mapInArrow(_HeldRows(str(gate)), "key string, value string, timestamp timestamp")
    )

    def job() -> None:
        stratalog.spark.write(
            rows,
            remote=bucket.as_uri(),
            topic="lossy",
            partitions=3,
            segment_bytes="16k",
            batch_bytes="4k",
            sort_by_time=True,
        )

    during = _with_loss(job, lose, lambda: bool(_objects(bucket)), lambda: gate.touch())
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = stratalog.spark.read(spark, remote=bucket.as_uri(), subscribe="lossy")
    findings = audit(bucket.as_uri(), grace_ms=0, executor=SparkExecutor(spark)).findings
    return [facts(found), sorted(finding.kind for finding in findings)], during


def compact(spark: SparkSession, directory: Path, lose: Lose | None) -> Any:
    """Six topics; the executor dies when the first new segment is in the bucket."""
    bucket = directory / "compacted"
    for topic in TOPICS:
        write_log(directory / "logs" / f"{topic}-0", records=2000, keys=700)
        log = PartitionLog.open(directory / "logs" / f"{topic}-0", LogConfig(), clean_shutdown=True)
        upload(log, ObjectStore.from_url(bucket.as_uri()), topic=topic)
        log.close()
    before = _objects(bucket)
    results = []

    def job() -> None:
        results.append(
            compact_bucket(
                bucket.as_uri(), topics=TOPICS, overrides=COMPACTED, grace_seconds=0, executor=SparkExecutor(spark)
            )
        )

    during = _with_loss(job, lose, lambda: bool(_objects(bucket) - before), lambda: None)
    found = stratalog.spark.read(spark, remote=bucket.as_uri(), subscribe=TOPICS)
    findings = audit(bucket.as_uri(), grace_ms=0, executor=SparkExecutor(spark)).findings
    return [gains(results[0]), facts(found), sorted(finding.kind for finding in findings)], during


def _objects(bucket: Path) -> set[str]:
    return {str(path) for path in bucket.rglob("*") if path.is_file()}


def _with_loss(job: Lose, lose: Lose | None, reached: Callable[[], bool], go_on: Callable[[], object]) -> bool:
    """Run the job; whether it was under way when the executor died."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + _WAIT_SECONDS
    while not reached() and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    if lose is not None:
        lose()
    during = thread.is_alive()
    go_on()
    thread.join()
    for problem in problems:
        raise problem
    return during
