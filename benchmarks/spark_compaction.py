"""Compaction on Spark against our own log cleaner and Apache Kafka's, one core each, on the same files.

    python -m benchmarks.spark_compaction [--megabytes 400,1600] [--record-size 1000] [--batch-bytes 16384]
                                         [--rounds 3] [--kafka] [--json FILE]

The log is that of `benchmarks.compaction`: half clean, half dirty, closed as a broker closes it, so that nobody has to
recover it. Spark works on one core (`local[1]`); its session is there before, and has compacted the log three times, as
the cleaners have cleaned a small one three times. What is timed is the whole job, from planning to the swap, and what
its tasks took in sum (`core_seconds`); a cleaner's time is that of the cleaning alone. Both wait until what they wrote
is on the disk. What a Spark job costs however small it is weighs less the larger the log is; its parts are printed.

Memory is that of the Python worker that has most, for each of the sizes: it should be the same for all. Anonymous pages
are what it holds itself; the resident set has also what is mapped of libraries and shared with the daemon that it comes
from.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.compaction import CLEANER, SEGMENT_BYTES, kafkas_command, run, write_log
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result, figure
from stratalog.jobs.compaction.run import compact_data_dirs
from stratalog.jobs.progress import Progress
from stratalog.log.format.checkpoints import CLEAN_SHUTDOWN, CLEANER_OFFSETS, OffsetCheckpoint
from stratalog.records import Codec
from stratalog.spark import local_session
from stratalog.spark.executor import SparkExecutor

TARGET = 0.8
_WORKER = [b"-m", b"stratalog.spark.jvm.worker_daemon"]
#: Of a job, one after the other.
_PARTS = ("planning", "keys and newest", "between", "rewriting and swap", "end")


class WorkerMemory(threading.Thread):
    """The largest resident set, and the most anonymous memory, that any Python worker had, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.resident = self.anonymous = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            for process in descendants(os.getpid()):
                with suppress(OSError):
                    if (process / "cmdline").read_bytes().split(b"\0")[1:3] == _WORKER:
                        status = (process / "status").read_text()
                        self.resident = max(self.resident, _kilobytes(status, "VmHWM") * 1024)
                        self.anonymous = max(self.anonymous, _kilobytes(status, "RssAnon") * 1024)

    def end(self) -> None:
        self._ended.set()
        self.join()


def _kilobytes(status: str, name: str) -> int:
    """A line of /proc/PID/status; 0 for a process that is about to end."""
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(name)), 0)


class Phases(Progress):
    """When a compaction's parts began and ended."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def begin(self, title: str, total: int) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())

    def end(self) -> None:
        self.times.append(time.perf_counter())

    def seconds(self) -> dict[str, float]:
        """Of all parts; they are the whole time."""
        times = [*self.times, time.perf_counter()]
        return {name: end - start for name, (start, end) in zip(_PARTS, pairwise(times), strict=True)}


def descendants(pid: int) -> list[Path]:
    """The processes below one, by their directories in /proc."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [Path(f"/proc/{child}"), *descendants(child)]
    return found


def on_spark(spark: SparkSession, scratch: Path, source: Path, first_dirty: int) -> Sample:
    directory = scratch / "spark"
    shutil.copytree(source, directory / source.name)
    OffsetCheckpoint(directory / CLEANER_OFFSETS).write({("latest", 0): first_dirty})
    (directory / CLEAN_SHUTDOWN).write_text('{"version": 0, "brokerEpoch": -1}')
    overrides = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
    memory = WorkerMemory()
    memory.start()
    phases = Phases()
    try:
        start = time.perf_counter()
        result = compact_data_dirs(
            [directory], topics=["latest"], overrides=overrides, progress=phases, executor=SparkExecutor(spark)
        )
        seconds = time.perf_counter() - start
        of_phases = phases.seconds()
    finally:
        memory.end()
        shutil.rmtree(directory)
    (done,) = result.partitions
    return {
        "seconds": seconds,
        "bytes_per_s": done.bytes_in / seconds,
        "bytes_per_core_s": done.bytes_in / done.core_seconds,
        "core_seconds": done.core_seconds,
        "resident": memory.resident,
        "anonymous": memory.anonymous,
        **of_phases,
    }


def cleaner(command: Sequence[object], scratch: Path, small: tuple[Path, int], large: tuple[Path, int]) -> Sample:
    """The whole log a second: clean and dirty part, as for Spark."""
    sample = dict(run(command, scratch, small, large))
    size = sum(path.stat().st_size for path in large[0].glob("*.log"))
    sample["bytes_per_s"] = sample["bytes_per_core_s"] = size / sample["seconds"]
    return sample


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=3)
    parser.add_argument("--megabytes", default="400,1600", help="sizes of the log (default: 400,1600)")
    parser.add_argument("--record-size", type=int, default=1000, help="bytes (default: 1000)")
    parser.add_argument("--batch-bytes", type=int, default=16_384, help="before compression (default: 16384)")
    parser.add_argument("--kafka", action="store_true", help="beside Kafka's cleaner too")
    options = parser.parse_args(argv)
    report = Report(options.json)
    spark = local_session("stratalog benchmark", **{"spark.master": "local[1]"})
    peers = {"cleaner": [sys.executable, "-c", CLEANER]}
    if options.kafka:
        peers["kafka"] = [str(word) for word in kafkas_command()]
    is_warm = False
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        shape = options.record_size, options.batch_bytes, Codec.NONE
        small = root / "small" / "latest-0"
        smalls = small, write_log(small, 50 * 10**6, *shape)
        for megabytes in map(int, options.megabytes.split(",")):
            path = root / str(megabytes) / "latest-0"
            large = path, write_log(path, megabytes * 10**6, *shape)
            for name, command in peers.items():
                rounds = alternate(
                    ("spark", partial(on_spark, spark, root, *large)),
                    (name, partial(cleaner, command, root, smalls, large)),
                    rounds=options.rounds,
                    warm_ups=1 if is_warm else 3,
                )
                is_warm = True
                job = f"compaction on Spark, {options.record_size} B records, {megabytes} MB"
                for what, words in (("bytes_per_s", "whole job"), ("bytes_per_core_s", "tasks alone")):
                    result = Result.of(f"{job}, {words}", rounds, what, unit="MB/s a core", scale=1e6, target=TARGET)
                    report.add(result, rounds)
                times = ", ".join(f"{name} {rounds.median('spark', name):.2f}" for name in _PARTS)
                print(f"{job}: {times}; all tasks {rounds.median('spark', 'core_seconds'):.2f} s")
                memory = (
                    f"{figure(rounds.median('spark', what) / 1e6)} MB {what}" for what in ("anonymous", "resident")
                )
                print(f"{job}: memory of a worker {', '.join(memory)}")
            shutil.rmtree(path.parent)
    spark.stop()
    report.close()


if __name__ == "__main__":
    main()
