"""Kafka serves a directory that the bulk sink wrote into, and its own tool finds nothing wrong with the files."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.writer import BulkWriter
from tests.interop.contents import T0, consume
from tests.spark.sink.test_targets import SCHEMA, rows
from tests.support.reference_kafka import ReferenceKafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "bulk"
COUNT = 3000


def test_kafka_serves_what_the_sink_wrote(kafka: ReferenceKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config={"retention.ms": "-1"})])[TOPIC].result(60)
    _produce(kafka, "before")
    with kafka.stopped() as data_dir:
        options = {"path": str(data_dir), "topic": TOPIC, "codec": "zstd", "segmentBytes": "64k", "batchBytes": "4k"}
        writer = BulkWriter(SinkOptions.parse(options), SCHEMA, overwrite=False)
        half = [f"{n:050} of the bulk" for n in range(COUNT)]
        tasks = (half[: COUNT // 2], half[COUNT // 2 :])
        writer.commit([writer.write(iter([rows(task, start_ms=T0)])) for task in tasks])
        logs = sorted((data_dir / f"{TOPIC}-0").glob("*.log"))
        indexes = [path for log in logs for path in (log.with_suffix(".index"), log.with_suffix(".timeindex"))]
        assert len(logs) > 2
        reported = kafka.dump_log(["--files", ",".join(map(str, logs)), "--deep-iteration", "--print-data-log"])
        assert reported.count(" of the bulk") == COUNT
        assert "isvalid: false" not in reported
        reported = kafka.dump_log(["--files", ",".join(map(str, indexes)), "--verify-index-only"])
        assert "mismatch" not in reported.lower()
        assert "Found" not in reported
    _produce(kafka, "behind")
    seen = consume(kafka.bootstrap_servers, TOPIC)
    assert [each.offset for each in seen] == list(range(COUNT + 2))
    values = [(each.value or b"").decode() for each in seen]
    assert values == ["before", *half, "behind"]
    assert [each.timestamp_ms for each in seen[1:-1]] == [T0 + n for n in range(COUNT // 2)] * 2


def _produce(kafka: ReferenceKafka, value: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    producer.produce(TOPIC, value, timestamp=T0)
    assert producer.flush(60) == 0
