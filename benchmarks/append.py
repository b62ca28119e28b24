"""A partition log in process, appended to and read, against Kafka's UnifiedLog: no broker, no network.

    python -m benchmarks.append [--jobs small,medium,large] [--rounds 5] [--json FILE]

The same batch is appended over and over to a new log, then all of it is read in pieces of 1 MiB. Kafka looks at every
record of a batch that it appends, ours at the header and the CRC. The JVM stays the same for all rounds.
"""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.reference_jars import BROKER_JARS, classpath, java

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.log.opening import open_log
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

DRIVER = Path(__file__).with_name("support") / "KafkaLog.java"
READ_SIZE = 1024 * 1024


class Job(NamedTuple):
    """What is appended, and how often in a round."""

    records: int
    value_size: int
    appends: int

    @property
    def batch(self) -> bytes:
        chance = random.Random(7)
        now_ms = time.time_ns() // 1_000_000
        return build_batch([Record(i, now_ms, None, chance.randbytes(self.value_size)) for i in range(self.records)])


JOBS = {"small": Job(1, 100, 100_000), "medium": Job(100, 100, 20_000), "large": Job(1_000, 1_024, 300)}


class Kafka:
    """A JVM with Kafka's log classes."""

    def __init__(self) -> None:
        command = [
            java(),
            "-Xmx1g",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp",
            classpath(BROKER_JARS),
        ]
        self._process = subprocess.Popen(
            [*command, str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, directory: Path, batch: Path, appends: int) -> Sample:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{directory} {batch} {appends} {READ_SIZE}\n")
        self._process.stdin.flush()
        append_ns, read_ns, size = (int(word) for word in self._process.stdout.readline().split())
        return _sample(append_ns, read_ns, size, batch.stat().st_size, appends)

    def close(self) -> None:
        self._process.communicate()


def ours(directory: Path, batch: bytes, appends: int) -> Sample:
    with open_log(directory) as log:
        append = log.partition_log.append_as_leader
        start = time.perf_counter_ns()
        for _ in range(appends):
            append(batch, leader_epoch=0)
        appended = time.perf_counter_ns()
        log.partition_log.update_high_watermark(log.log_end_offset)
        offset, size, end = 0, 0, log.log_end_offset
        records = end // appends
        while offset < end:
            part = log.read(offset, READ_SIZE).slice
            assert part is not None
            data = part.read()
            size += len(data)
            offset += max(1, len(data) // len(batch)) * records
        read = time.perf_counter_ns()
        last = log.read(end - 1).slice
        assert last is not None
        assert next(iter_batches(last.read())).last_offset == end - 1
    return _sample(appended - start, read - appended, size, len(batch), appends)


def _sample(append_ns: int, read_ns: int, read_size: int, batch_size: int, appends: int) -> Sample:
    assert read_size >= batch_size * appends
    return {
        "appends_per_second": appends / append_ns * 1e9,
        "append_bytes_per_second": appends * batch_size / append_ns * 1e9,
        "read_bytes_per_second": read_size / read_ns * 1e9,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=2)
    parser.add_argument("--jobs", default=",".join(JOBS), help="which of them (default: all)")
    parser.add_argument("--dir", help="where the logs are kept (default: a temporary directory)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    kafka = Kafka()
    with tempfile.TemporaryDirectory(dir=options.dir) as root:
        for name in options.jobs.split(","):
            measure(report, kafka, Path(root), name, JOBS[name], options.rounds)
    kafka.close()
    report.close()


def measure(report: Report, kafka: Kafka, root: Path, name: str, job: Job, rounds: int) -> None:
    batch = job.batch
    path = root / name
    path.write_bytes(batch)
    numbers = itertools.count()

    def in_new_directory(who: str) -> Sample:
        directory = root / f"{who}{next(numbers)}-0"
        try:
            return ours(directory, batch, job.appends) if who == "ours" else kafka.run(directory, path, job.appends)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    result = alternate(
        ("stratalog", lambda: in_new_directory("ours")),
        ("Kafka 4.4.0", lambda: in_new_directory("kafka")),
        rounds=rounds,
        warm_ups=2,
    )
    what = f"in process, batches of {job.records} x {job.value_size} bytes"
    settings = job._asdict()
    report.add(Result.of(f"append {what}", result, "appends_per_second", unit="appends/s"), result, **settings)
    line = Result.of(f"append {what}", result, "append_bytes_per_second", unit="MB/s", scale=1e6)
    report.add(line, **settings)
    line = Result.of(f"read {what}", result, "read_bytes_per_second", unit="MB/s", scale=1e6)
    report.add(line, **settings)


if __name__ == "__main__":
    main()
