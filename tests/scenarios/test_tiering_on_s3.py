"""The life of a tiered topic against a real S3 server: out to the store, read back, restarted, cut off, deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

import stratalog
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore
from tests.support.s3_server import S3Server, require_s3_server
from tests.support.waiting import wait_until

TOPIC = "orders"
SEGMENT_BYTES = 1024 * 1024
RECORDS = 6_000
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def settings(s3: S3Server, prefix: str) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "stratalog.remote.url": s3.url(f"tiered/{prefix}"),
        **{f"rsm.config.{name}": value for name, value in s3.options.items()},
        "rsm.config.max.retries": "0",
        "remote.log.manager.task.retry.backoff.max.ms": "1000",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
        "auto.create.topics.enable": "false",
    }


def create_topic(address: str) -> None:
    config = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
        "retention.ms": "-1",
        "file.delete.delay.ms": "100",
    }
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1, config=config)])[TOPIC].result(30)


def produce(address: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "batch.size": 100_000})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%06d" % number + b"x" * 994, key=b"%d" % number, timestamp=START_MS + number * 1000)
        if number % 500 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def consume(address: str, offset: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None, message.error()
            assert message.timestamp()[1] == START_MS + message.offset() * 1000
            found.append(int(message.value()[:6]))
    consumer.close()
    return found


def local_segments(data_dir: Path) -> list[str]:
    return sorted(path.name for path in (data_dir / f"{TOPIC}-0").glob("*.log"))


def test_a_topic_lives_in_the_bucket_and_is_served_from_there(tmp_path: Path, s3: S3Server) -> None:
    store = ObjectStore.from_url(s3.url("tiered/life"), s3.options)

    def remote_ends() -> list[int]:
        return [manifest.end_offset for manifest in list_remote_segments(store, topics=[TOPIC])]

    with stratalog.Broker(data_dir=tmp_path, config=settings(s3, "life")) as broker:
        create_topic(broker.bootstrap_servers)
        produce(broker.bootstrap_servers, 0, RECORDS)
        wait_until(lambda: len(local_segments(tmp_path)) == 1, "only the active segment is local")
        active = int(local_segments(tmp_path)[0][:20])
        assert active > 0
        assert remote_ends()[-1] == active - 1
        assert consume(broker.bootstrap_servers, 0, RECORDS) == list(range(RECORDS))

        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        partition = TopicPartition(TOPIC, 0)
        for wanted, spec in [
            (0, OffsetSpec.earliest()),
            (RECORDS, OffsetSpec.latest()),
            (100, OffsetSpec.for_timestamp(START_MS + 99_001)),
        ]:
            assert admin.list_offsets({partition: spec})[partition].result(30).offset == wanted

    # Cleanly restarted, without anything to recover: the same records, from the same places.
    with stratalog.Broker(data_dir=tmp_path, config=settings(s3, "life")) as broker:
        assert consume(broker.bootstrap_servers, 10, RECORDS - 10) == list(range(10, RECORDS))

        # Cut off: writing goes on, nothing local goes; afterwards everything catches up.
        s3.stop()
        produce(broker.bootstrap_servers, RECORDS, RECORDS)
        time.sleep(1)
        kept = local_segments(tmp_path)
        assert int(kept[0][:20]) == active
        assert len(kept) > 1
        assert consume(broker.bootstrap_servers, RECORDS, RECORDS) == list(range(RECORDS, 2 * RECORDS))
        s3.start()
        wait_until(lambda: len(local_segments(tmp_path)) == 1, "the backlog is remote", seconds=90)
        assert consume(broker.bootstrap_servers, 0, 2 * RECORDS) == list(range(2 * RECORDS))

        # Deleted: the bucket has only what is the broker's own afterwards.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        wait_until(lambda: all(_is_the_brokers(info.key) for info in store.list("")), "no segment is left")


def _is_the_brokers(key: str) -> bool:
    return key.startswith(("_owner/", "_metadata/"))
