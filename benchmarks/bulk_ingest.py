"""Loading files into a topic, `ingest` and `df.write`: both beside Spark's own Kafka sink into Apache Kafka.

    python -m benchmarks.bulk_ingest [--megabytes 512] [--rounds 3] [--json FILE]

Parquet files with keys and values of 1 KB, and of 100 bytes, are written to a topic of 4 partitions: by Spark's Kafka
sink through a broker; into a data directory by our `ingest`, whose tasks read the files, and by our sink, to which
Spark hands the rows. Both sessions have the same settings and the same codec, and records go to the same partitions.
Each write is a topic of its own. Both ends are counted: every record has to be there. Kafka's write is over when the
broker has acknowledged everything, ours when the segments are synced and published. Listing the files counts for
`ingest` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.reference_kafka import ReferenceKafka

from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from benchmarks.support.spark_kafka_source import spark_kafka_source
from stratalog.log.opening import open_log
from stratalog.spark.jvm.java import spark_java_home

PARTITIONS = 4
#: Ours, and how many times as fast as Spark's Kafka sink each is to be.
WAYS = {"ingest": 4.0, "df.write": 3.0}
CASES = ((1024, "none"), (100, "none"), (1024, "lz4"), (100, "lz4"))

_WRITER = Path(__file__).parent / "support" / "spark_writer.py"


class Writer:
    """A `spark_writer` process."""

    def __init__(self, python: str, *arguments: str) -> None:
        environment = os.environ | {"JAVA_HOME": str(spark_java_home()), "PYSPARK_PYTHON": python}
        self._process = subprocess.Popen(
            [python, str(_WRITER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=_WRITER.parent,
        )
        self._answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the writer ended; its errors are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Comparison:
    """One broker and both writers, and a directory for ours."""

    def __init__(self, kafka: ReferenceKafka, ours: Writer, theirs: Writer, directory: Path) -> None:
        self._kafka = kafka
        self._ours = ours
        self._theirs = theirs
        self._input = directory / "input"
        self._data = directory / "data"
        self._number = count()

    def make(self, records: int, record_bytes: int) -> None:
        self._ours.ask(input=str(self._input), make=[records, record_bytes])

    def ours(self, records: int, codec: str) -> Sample:
        sample: dict[str, float] = {}
        for way in WAYS:
            self._data.mkdir()
            options = {"path": str(self._data), "topic": "t", "partitions": str(PARTITIONS), "codec": codec}
            seconds = self._ours.ask(input=str(self._input), options=options, way=way)["seconds"]
            found = 0
            for number in range(PARTITIONS):
                with open_log(self._data / f"t-{number}") as log:
                    found += log.log_end_offset
            shutil.rmtree(self._data)
            os.sync()
            sample |= {way: _rate(records, found, seconds), f"{way}_seconds": seconds}
        return sample

    def theirs(self, records: int, codec: str) -> Sample:
        topic = f"t-{next(self._number)}"
        servers = self._kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.compression.type": codec}
        seconds = self._theirs.ask(input=str(self._input), options=options)["seconds"]
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "count"})
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, n))[1] for n in range(PARTITIONS)]
        consumer.close()
        admin.delete_topics([topic])[topic].result(60)
        rate = _rate(records, sum(ends), seconds)
        return {"seconds": seconds, **dict.fromkeys(WAYS, rate)}


def _rate(expected: int, found: int, seconds: float) -> float:
    if found != expected:
        raise SystemExit(f"{expected} records were written, {found} are there")
    return found / seconds


def compare(report: Report, directory: Path, size: int, rounds: int) -> None:
    connector = spark_kafka_source()
    with (
        ReferenceKafka(directory / "kafka", jvm_options=("-Xms1G", "-Xmx1G")) as kafka,
        Writer(sys.executable, "stratalog") as ours,
        Writer(str(connector.python), "kafka", ",".join(map(str, connector.jars))) as theirs,
    ):
        comparison = Comparison(kafka, ours, theirs, directory)
        for record_bytes, codec in CASES:
            records = size // record_bytes
            comparison.make(records, record_bytes)
            measured = alternate(
                ("stratalog", lambda n=records, c=codec: comparison.ours(n, c)),  # type: ignore[misc]
                ("Spark's Kafka sink", lambda n=records, c=codec: comparison.theirs(n, c)),  # type: ignore[misc]
                rounds=rounds,
            )
            for way, target in WAYS.items():
                job = f"{way} of {record_bytes}-byte records, {codec}"
                result = Result.of(job, measured, way, unit="records/s", target=target)
                report.add(result, measured, records=records)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512, help="of values in each load (default: 512)")
    parser.add_argument("--rounds", type=int, default=3, help="that count, after one that does not (default: 3)")
    parser.add_argument("--json", help="write all samples there (- for stdout)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    with tempfile.TemporaryDirectory(prefix="stratalog-bulk-") as directory:
        compare(report, Path(directory), options.megabytes * 1_000_000, options.rounds)
    report.close()


if __name__ == "__main__":
    main()
