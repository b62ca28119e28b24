"""Topics that were loaded past any broker are served by one: from its own directory, and restored from a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import stratalog
from stratalog.cli.main import run
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.writer import BulkWriter
from tests.spark.sink.test_targets import SCHEMA, rows
from tests.support.s3_server import S3Server, require_s3_server

COUNT = 2000
VALUES = [f"{n:080}" for n in range(COUNT)]


def load(**options: str) -> None:
    """Two tasks, several segments in each of two partitions."""
    wanted = SinkOptions.parse(
        {"topic": "bulk", "partitions": "2", "segmentBytes": "32k", "batchBytes": "4k", **options}
    )
    writer = BulkWriter(wanted, SCHEMA, overwrite=False)
    tasks = [[rows(VALUES[at : at + COUNT // 2], partition) for partition in (0, 1)] for at in (0, COUNT // 2)]
    writer.commit([writer.write(iter(task)) for task in tasks])


def consumed(address: str, partition: int) -> list[str]:
    """The values of a partition, which has COUNT of them."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("bulk", partition, 0)])
    found: list[str] = []
    while len(found) < COUNT:
        messages = consumer.consume(1000, timeout=30)
        assert messages, f"{len(found)} of {COUNT} came"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            found.append((message.value() or b"").decode())
    consumer.close()
    return found


def test_a_broker_serves_what_was_written_into_its_directory(tmp_path: Path) -> None:
    with stratalog.Broker(data_dir=tmp_path, listen="127.0.0.1:0") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("bulk", 2, config={"retention.ms": "-1"})])["bulk"].result(30)
    load(path=str(tmp_path))
    with stratalog.Broker(data_dir=tmp_path, listen="127.0.0.1:0") as broker:
        for partition in (0, 1):
            assert consumed(broker.bootstrap_servers, partition) == VALUES


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_a_broker_serves_what_was_restored_from_the_bucket(tmp_path: Path, kind: str) -> None:
    if kind == "directory":
        (tmp_path / "store").mkdir()
        _restored_and_served(tmp_path, (tmp_path / "store").as_uri(), {})
        return
    require_s3_server()
    with S3Server(tmp_path / "s3") as server:
        store = ObjectStore.from_url(server.url("bulk/tiered"), server.options)
        store.put("first", b"makes the bucket")
        store.delete(["first"])
        _restored_and_served(tmp_path, server.url("bulk/tiered"), dict(server.options))


def _restored_and_served(tmp_path: Path, url: str, options: dict[str, str]) -> None:
    load(remote=url, **{f"remote.{name}": value for name, value in options.items()})
    given = [part for name, value in options.items() for part in ("--store-option", f"{name}={value}")]
    assert run(["tier", "audit", url, "--deep", *given]) == 0
    data_dir = tmp_path / "data"
    assert run(["tier", "restore", url, "--data-dir", str(data_dir), "--metadata-partitions", "5", *given]) == 0
    config = {
        "remote.log.storage.system.enable": "true",
        "stratalog.remote.url": url,
        **{f"rsm.config.{name}": value for name, value in options.items()},
        "remote.log.metadata.topic.num.partitions": "5",
    }
    with stratalog.Broker(data_dir=data_dir, listen="127.0.0.1:0", config=config) as broker:
        for partition in (0, 1):
            assert consumed(broker.bootstrap_servers, partition) == VALUES
