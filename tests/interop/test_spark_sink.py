"""Spark writes through Apache Kafka, in transactions: its own consumers see each batch once."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.records.compression import Codec
from stratalog.spark.sink.broker import ProducingWrite
from stratalog.spark.sink.broker_options import BrokerSinkOptions
from tests.spark.sink.test_through_brokers import SCHEMA, rows
from tests.support.reference_kafka import ReferenceKafka

pytestmark = pytest.mark.interop

TOPIC = "written-by-spark"


def write_of(kafka: ReferenceKafka, **more: str) -> ProducingWrite:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC, "queryId": "q", **more}
    return ProducingWrite(BrokerSinkOptions.parse(options), SCHEMA)


def test_numbered_batches_are_seen_once_by_kafkas_consumers(kafka: ReferenceKafka, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(60)
    expected = []
    for batch, codec in enumerate(Codec):
        values = [f"{batch}-{number}" for number in range(200)]
        expected += values
        write = write_of(kafka, codec=codec.name.lower(), batchBytes="1k")
        write.run(rows(*values))  # an attempt that is lost
        write.commit([write.run(rows(*values))], batch)
        again = write_of(kafka)
        again.commit([again.run(rows(*values))], batch)
    unfinished = write_of(kafka)
    unfinished.run(rows("never"))
    unfinished.abort()
    assert sorted(consumed(kafka)) == sorted(expected)


def consumed(kafka: ReferenceKafka) -> list[str]:
    """Up to the end of every partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
        }
    )
    consumer.subscribe([TOPIC])
    values: list[str] = []
    ended: set[int] = set()
    while len(ended) < 3:
        message = consumer.poll(10)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            ended.add(message.partition())
    consumer.close()
    return values
