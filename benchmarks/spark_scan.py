"""Spark over segments, beside Spark's own Kafka source through a broker; and how little of a month one hour reads.

    python -m benchmarks.spark_scan [--megabytes 512] [--rounds 5] [--only scan|stream|remote|hour] [--codecs none,lz4]

Apache Kafka gets a topic of 4 partitions with records of 1 KB, and one with records of 100 bytes, each uncompressed,
with lz4 and with zstd (random bytes; with a codec, random words). Spark counts the records, adds up the lengths of the
values and finds the largest offset and timestamp, and then, of the uncompressed ones, does the like with every column:
through the Kafka source and the broker, and through ours straight from the broker's log directory. The sessions have
the same settings; results must be equal.

Streams: both follow the uncompressed topics from their beginning to what is there, as one micro-batch, and use value,
offset and timestamp of each record; ours as it does, and with Spark taking rows of it.

The remote tier: a partition of sealed segments of 1 KB records, scanned from its directory and from a real S3 server on
this machine: once with Spark and the server on all cores, so that the server's work takes from Spark's; and once with
Spark on one core and the server on another, so that Spark has the same cores in both cases.

The hour: a topic of a month of CreateTime records, each second some, and a filter on `timestamp` for one hour of it.
Bytes are those that planning and reading ask of files. Without `timestampDisorder` everything after the hour is read
too, because any later record might be older.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.reference_kafka import ReferenceKafka
from tests.support.s3_server import S3Server

from benchmarks.support.cores import cores, on_cores
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from benchmarks.support.spark_kafka_source import spark_kafka_source
from benchmarks.support.tier import BATCHES, MetadataEvents, SealedPartition
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark.jvm.java import spark_java_home

PARTITIONS = 4
TARGETS = {1024: 4.0, 100: 8.0}
CODECS = ("none", "lz4", "zstd")

#: How much longer a scan of the remote tier may take than one of the same segments in a directory.
REMOTE_TARGET = 1.3

HOUR_MS = 3_600_000
T0 = 1_700_000_000_000 // HOUR_MS * HOUR_MS
HOURS = 30 * 24

_SCANNER = Path(__file__).parent / "support" / "spark_scanner.py"


class Scanner:
    """A `spark_scanner` process."""

    def __init__(self, python: str, *arguments: str) -> None:
        environment = os.environ | {"JAVA_HOME": str(spark_java_home()), "PYSPARK_PYTHON": python}
        self._process = subprocess.Popen(
            [python, str(_SCANNER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=_SCANNER.parent,
        )
        self._answer()

    def scan(self, options: dict[str, str], every_column: bool) -> dict[str, Any]:
        return self._ask({"options": options, "every_column": every_column})

    def stream(self, options: dict[str, str]) -> dict[str, Any]:
        return self._ask({"options": options})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the scanner ended; its errors are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Scanner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def some_values(record_bytes: int, codec: str) -> list[bytes]:
    """Values of one size, that a codec has something to do with."""
    if codec == "none":
        return [os.urandom(record_bytes) for _ in range(1000)]
    words = [os.urandom(4).hex().encode() for _ in range(1000)]
    return [b" ".join(random.choices(words, k=record_bytes // 9 + 1))[:record_bytes] for _ in range(1000)]


def fill(kafka: ReferenceKafka, topic: str, record_bytes: int, codec: str, size: int) -> int:
    """Make a topic of about `size` bytes before compression; returns how many records."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    count = size // record_bytes
    values = some_values(record_bytes, codec)
    producer = Producer(
        {
            "compression.type": codec,
            "bootstrap.servers": kafka.bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 256 * 1024,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for n in range(count):
        while True:
            try:
                producer.produce(topic, values[n % 1000], partition=n * PARTITIONS // count)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{topic} was not written in time")
    return count


def compare(
    report: Report, directory: Path, codecs: Sequence[str], size: int, rounds: int, for_spark: set[int]
) -> None:
    """Both sources over the same topics, Spark on the cores `for_spark`, the broker on all."""
    kafka_source = spark_kafka_source()
    with (
        ReferenceKafka(directory / "kafka", jvm_options=("-Xms1G", "-Xmx1G")) as kafka,
        on_cores(for_spark),
        Scanner(sys.executable, "stratalog") as ours,
        Scanner(str(kafka_source.python), "kafka", ",".join(map(str, kafka_source.jars))) as theirs,
    ):
        for codec, record_bytes in product(codecs, TARGETS):
            topic = f"records-of-{record_bytes}-{codec}"
            count = fill(kafka, topic, record_bytes, codec, size)
            ours_options = {"path": str(kafka.data_dir), "subscribe": topic}
            theirs_options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
            queries = [("values and times", False)] + [("every column", True)] * (codec == "none")
            for name, every_column in queries:
                expected = theirs.scan(theirs_options, every_column)
                found = ours.scan(ours_options, every_column)
                if _answer(found) != _answer(expected) or found["records"] != count:
                    raise SystemExit(f"{topic}: stratalog says {found}, Kafka {expected}, {count} were written")
                measured = alternate(
                    ("stratalog", partial(_scan, ours, ours_options, every_column)),
                    ("Spark's Kafka source", partial(_scan, theirs, theirs_options, every_column)),
                    rounds=rounds,
                )
                compressed = "" if codec == "none" else f", {codec}"
                result = Result.of(
                    f"scan of {record_bytes}-byte records{compressed}, {name}",
                    measured,
                    "records_per_second",
                    unit="records/s",
                    target=TARGETS[record_bytes],
                )
                report.add(result, measured, records=count)


def compare_streams(report: Report, directory: Path, size: int, rounds: int) -> None:
    """Both sources as streams over the same topics; ours through the broker's directory, by columns and by rows."""
    kafka_source = spark_kafka_source()
    with (
        ReferenceKafka(directory / "streams", jvm_options=("-Xms1G", "-Xmx1G")) as kafka,
        Scanner(sys.executable, "stratalog") as ours,
        Scanner(str(kafka_source.python), "kafka", ",".join(map(str, kafka_source.jars))) as theirs,
    ):
        for record_bytes in TARGETS:
            topic = f"stream-of-{record_bytes}"
            count = fill(kafka, topic, record_bytes, "none", size)
            for how, by_columns in (("by columns", "true"), ("by rows", "false")):
                mine = {"path": str(kafka.data_dir), "subscribe": topic, "by columns": by_columns}
                other = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
                measured = alternate(
                    ("stratalog", partial(_stream, ours, mine, count)),
                    ("Spark's Kafka source", partial(_stream, theirs, other, count)),
                    rounds=rounds,
                )
                job = f"stream of {record_bytes}-byte records, {how}"
                result = Result.of(job, measured, "records_per_second", unit="records/s")
                report.add(result, measured, records=count)


def _stream(scanner: Scanner, options: dict[str, str], count: int) -> dict[str, Any]:
    found = scanner.stream(options)
    if found["records"] != count:
        raise SystemExit(f"{options['subscribe']}: the stream had {found['records']} of {count} records")
    return found


def compare_tiers(report: Report, directory: Path, size: int, rounds: int, *, apart: bool) -> None:
    """The same segments in a directory and on an S3 server; `apart` gives Spark one core and the server another."""
    here = cores()
    if apart and len(here) < 2:
        print("there is one core only: no scan with the server on another one")
        return
    for_spark, for_server = ({here[0]}, {here[1]}) if apart else (set(here), set(here))
    where = "the server on another core" if apart else "the server on the same cores"
    with ExitStack() as stack:
        with on_cores(for_server):
            s3 = stack.enter_context(S3Server(directory / "s3"))
        with on_cores(for_spark):
            scanner = stack.enter_context(Scanner(sys.executable, "stratalog"))
        sealed = SealedPartition(directory / "local", BATCHES["batches of 16 KiB"], size)
        url = s3.url("benchmark/tiered")
        sealed.copy(ObjectStore.from_url(url, s3.options), MetadataEvents())
        end = {"endingOffsets": json.dumps({"t": {"0": sealed.log.log_end_offset}}), "subscribe": "t"}
        local = end | {"path": str(directory / "local")}
        remote = end | {"remote": url} | {f"remote.{name}": value for name, value in s3.options.items()}
        for name, every_column in (("values and times", False), ("every column", True)):
            if _answer(scanner.scan(local, every_column)) != _answer(scanner.scan(remote, every_column)):
                raise SystemExit("the two tiers do not hold the same")
            measured = alternate(
                ("remote", partial(_scan, scanner, remote, every_column)),
                ("local", partial(_scan, scanner, local, every_column)),
                rounds=rounds,
            )
            result = Result.of(
                f"scan of the remote tier, {where}, 1 KB records, {name}",
                measured,
                "seconds",
                unit="s",
                target=REMOTE_TARGET,
                more_is_better=False,
            )
            report.add(result, measured)


def _answer(found: dict[str, Any]) -> dict[str, Any]:
    """What the query said, without how long it took."""
    return {name: value for name, value in found.items() if "second" not in name}


def _scan(scanner: Scanner, options: dict[str, str], every_column: bool) -> Sample:
    return scanner.scan(options, every_column)


# --- one hour of a month ----------------------------------------------------------------------------------------------


def write_month(directory: Path, size: int) -> None:
    """A month in one partition: batches of ten seconds, segments of 16 MB."""
    from stratalog.config.topic import LogConfig
    from stratalog.log.partition_log import PartitionLog
    from stratalog.records.batch_builder import build_batch
    from stratalog.records.record import Record

    config = LogConfig(segment_bytes=16 * 1024 * 1024, retention_ms=-1)
    log = PartitionLog.open(directory / "month-0", config)
    log.leader_epochs.assign(0, 0)
    batches = HOURS * 360
    values = [os.urandom(max(size // batches // 10 - 10, 10)) for _ in range(10)]
    for n in range(batches):
        start = T0 + n * 10_000
        records = [Record(i, start + i * 1000, None, value) for i, value in enumerate(values)]
        log.append_as_leader(build_batch(records), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.close()


def bytes_read(path: Path, where: str, **more: str) -> tuple[int, int]:
    """Records and bytes of a query, planned and read as Spark does, in this process."""
    from datetime import UTC, datetime

    from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

    from stratalog.inspect.byte_sources import ByteSources
    from stratalog.spark.options.data_loss import on_data_loss
    from stratalog.spark.options.read_options import ReadOptions
    from stratalog.spark.planning.filters import Constraints, push
    from stratalog.spark.planning.planner import Planner
    from stratalog.spark.reading.decode import Selection
    from stratalog.spark.reading.split_reader import SplitReader

    low, high = (datetime.fromtimestamp(int(ms) / 1000, UTC) for ms in where.split())
    filters = [GreaterThanOrEqual(("timestamp",), low), LessThan(("timestamp",), high)]
    options = ReadOptions.parse({"path": str(path), "subscribe": "month"} | more)
    constraints, rest = push(filters, Constraints())
    assert not rest
    places = ByteSources()
    reader = SplitReader(places, on_data_loss(True))
    selection = Selection(("value", "timestamp"), constraints.timestamps_ms)
    plans = Planner(options, constraints, places).plan()
    records = sum(found.num_rows for plan in plans for found in reader.read(plan, selection))
    return records, places.bytes_read


def one_hour(report: Report, directory: Path, size: int) -> None:
    write_month(directory, size)
    total = sum(path.stat().st_size for path in (directory / "month-0").glob("*.log"))
    hour_bytes = total / HOURS
    low = T0 + 12 * 24 * HOUR_MS + 7 * HOUR_MS
    for name, options in (("timestampDisorder=0", {"timestampDisorder": "0"}), ("no timestampDisorder", {})):
        records, read = bytes_read(directory, f"{low} {low + HOUR_MS}", **options)
        if records != 3600:
            raise SystemExit(f"the hour has 3600 records, {records} were found")
        target = 1.1 if options else None
        report.add(
            Result(
                f"one hour of a month, {name}",
                read / hour_bytes,
                read / 1000,
                hour_bytes / 1000,
                "kB",
                "that hour",
                target,
                more_is_better=False,
            )
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512, help="of records in each topic (default: 512)")
    parser.add_argument("--rounds", type=int, default=5, help="that count, after one that does not (default: 5)")
    parser.add_argument("--only", choices=("scan", "stream", "remote", "hour"), help="one of the parts")
    parser.add_argument("--codecs", default=",".join(CODECS), help="of the scans beside Kafka's source")
    parser.add_argument("--spark-cores", type=int, help="of the scans beside Kafka's source (default: all)")
    parser.add_argument("--json", help="write all samples there (- for stdout)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    size = options.megabytes * 1_000_000
    with tempfile.TemporaryDirectory(prefix="stratalog-spark-") as directory:
        if options.only in (None, "hour"):
            one_hour(report, Path(directory), size)
        if options.only in (None, "remote"):
            for apart in (False, True):
                place = Path(directory) / ("apart" if apart else "together")
                place.mkdir()
                compare_tiers(report, place, size, options.rounds, apart=apart)
        if options.only in (None, "scan"):
            for_spark = set(cores()[: options.spark_cores])
            compare(report, Path(directory), options.codecs.split(","), size, options.rounds, for_spark)
        if options.only in (None, "stream"):
            compare_streams(report, Path(directory), size, options.rounds)
    report.close()


if __name__ == "__main__":
    main()
