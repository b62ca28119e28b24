"""Tiered topics of brokers of Kafka with Aiven's plugin and of ours: each serves and deletes what the other copied.

`STRATALOG_AIVEN_PLUGIN` names a directory with the jars of the plugin (core and file system), as its release has them,
built for the version of the reference broker.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.wire import ApiKey
from stratalog.wire.client import (
    EARLIEST_LOCAL_OFFSET,
    EARLIEST_OFFSET,
    LATEST_TIERED_OFFSET,
    Cluster,
    ConnectionOptions,
)
from tests.interop.test_kraft_replication import OurMember, wait_until
from tests.remote.storage.test_aiven_writing import write_pair
from tests.support.kraft_cluster import KafkaProcess, KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

PLUGIN = "STRATALOG_AIVEN_PLUGIN"
JVM, OURS = 1, 7
TOPIC = "orders"
VALUE_BYTES = 20_000
SEGMENT_BYTES = 1 << 20
TOPIC_CONFIG = 2


def settings(directory: Path, bucket: Path, *, everything: bool) -> dict[str, str]:
    """The settings of both brokers."""
    plugin = {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "storage.root": str(bucket),
        "chunk.size": "100000",
    }
    if everything:
        plugin |= write_pair(directory)
        plugin |= {
            "encryption.enabled": "true",
            "compression.enabled": "true",
            "key.prefix": "tier/",
            "custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
        }
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        "remote.log.storage.manager.class.path": f"{os.environ[PLUGIN]}/*",
        **{f"rsm.config.{name}": value for name, value in plugin.items()},
        "remote.log.metadata.custom.metadata.max.bytes": "1024",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "200",
        "replica.lag.time.max.ms": "5000",
    }


class MixedCluster:
    """One broker of Kafka with the plugin, one of ours, one directory as the bucket of both."""

    def __init__(self, cluster: KraftCluster, bucket: Path, config: dict[str, str]) -> None:
        self.bucket = bucket
        self.jvm: KafkaProcess = cluster.start_broker(JVM, config)
        self.ours = OurMember(cluster, OURS, config)
        self.servers = f"{self.jvm.address},127.0.0.1:{self.ours.port}"

    def connected(self) -> Cluster:
        return Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.servers}))

    def create(self) -> None:
        configs = {
            "remote.storage.enable": "true",
            "segment.bytes": str(SEGMENT_BYTES),
            "local.retention.bytes": str(SEGMENT_BYTES),
            "retention.ms": "-1",
        }
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [JVM, OURS]}],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        with self.connected() as client:
            reported = client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
            assert [(int(each.error_code), each.error_message) for each in reported.topics] == [(0, None)]

    def configure(self, name: str, value: str) -> None:
        change = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": TOPIC_CONFIG, "resource_name": TOPIC, "configs": [change]}
        with self.connected() as client:
            reported = client.any.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1), resources=[resource], validate_only=False
            )
            assert [int(each.error_code) for each in reported.responses] == [0]

    def delete(self) -> None:
        with self.connected() as client:
            reported = client.any.call(
                ApiKey.DELETE_TOPICS, (6, 6), topics=[{"name": TOPIC, "topic_id": None}], timeout=20_000
            )
            assert [int(each.error_code) for each in reported.responses] == [0]

    def offset(self, which: int) -> int:
        with self.connected() as client:
            return client.list_offsets({(TOPIC, 0): which})[TOPIC, 0].offset

    def isr(self) -> set[int]:
        with self.connected() as client:
            reported = client.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0]
            return set(map(int, reported.partitions[0].isr_nodes))

    def leader(self) -> int:
        with self.connected() as client:
            found = client.topics([TOPIC]).get(TOPIC)
            return -1 if found is None else found.partitions[0].leader

    def produce(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "enable.idempotence": True})
        for number in range(first, first + count):
            producer.produce(TOPIC, value=b"%08d" % number + bytes(VALUE_BYTES), partition=0)
            producer.poll(0)
        assert producer.flush(90) == 0

    def expect(self, first: int, end: int) -> None:
        """Read all from the start of the log, which the remote tier has."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "-", "enable.auto.commit": False})
        consumer.assign([KafkaPartition(TOPIC, 0, first)])
        found: list[int] = []

        def is_all() -> bool:
            taken = consumer.consume(100, 0.5)
            found.extend(int(each.value()[:8]) for each in taken if each.error() is None)
            return len(found) >= end - first

        wait_until(is_all, f"{end - first} records are read")
        consumer.close()
        assert found == list(range(first, end))

    def wait_until_tiered(self, through: int) -> None:
        wait_until(lambda: self.offset(LATEST_TIERED_OFFSET) >= through, f"{through} is in the remote tier")
        wait_until(lambda: self.offset(EARLIEST_LOCAL_OFFSET) > through - 100, "local segments go")

    def objects(self) -> list[Path]:
        return sorted(path for path in self.bucket.rglob("*") if path.is_file() and f"{TOPIC}-" in str(path))

    def starts(self) -> list[int]:
        """Return the base offsets of all segments that have a manifest."""
        return sorted(int(path.name.partition("-")[0]) for path in self.objects() if path.suffix == ".rsm-manifest")

    def makers(self) -> set[int]:
        """Return the brokers that copied the segments. One that comes or goes at this moment is left out."""
        found = set()
        for path in self.objects():
            if path.suffix == ".rsm-manifest":
                with contextlib.suppress(FileNotFoundError, ValueError):
                    found.add(int(json.loads(path.read_bytes())["remoteLogSegmentMetadata"]["brokerId"]))
        return found


@pytest.fixture(params=[False, True], ids=["plain", "everything"])
def mixed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MixedCluster]:
    if not os.environ.get(PLUGIN):
        pytest.skip(f"{PLUGIN} names no directory with the jars of Aiven's plugin")
    require_reference_kafka()
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    config = settings(tmp_path, bucket, everything=request.param)
    with KraftCluster(tmp_path / "cluster", config={"remote.log.storage.system.enable": "true"}) as cluster:
        made = MixedCluster(cluster, bucket, config)
        try:
            yield made
        finally:
            made.ours.end(signal.SIGKILL)


def test_each_side_serves_and_deletes_what_the_other_copied(mixed: MixedCluster) -> None:
    mixed.create()
    wait_until(lambda: mixed.isr() == {JVM, OURS}, "both are in sync")
    assert mixed.leader() == JVM
    mixed.produce(0, 400)
    mixed.wait_until_tiered(300)
    assert mixed.makers() == {JVM}

    mixed.jvm.kill()
    wait_until(lambda: mixed.leader() == OURS, "ours leads")
    mixed.expect(0, 400)
    mixed.produce(400, 400)
    mixed.wait_until_tiered(700)
    assert mixed.makers() == {JVM, OURS}
    audit(mixed)

    mixed.jvm.start()
    wait_until(lambda: mixed.isr() == {JVM, OURS}, "the JVM is in sync again")
    mixed.ours.end(signal.SIGKILL)
    wait_until(lambda: mixed.leader() == JVM, "the JVM leads again")
    mixed.expect(0, 800)
    mixed.produce(800, 400)
    mixed.wait_until_tiered(1_100)
    mixed.configure("retention.bytes", str(14 * SEGMENT_BYTES))
    wait_until(lambda: mixed.offset(EARLIEST_OFFSET) > 400, "the JVM deletes what is too much")
    wait_until(lambda: min(mixed.starts()) > 400, "what either copied has gone")

    mixed.ours.start()
    wait_until(lambda: mixed.isr() == {JVM, OURS}, "ours is in sync again")
    mixed.jvm.kill()
    wait_until(lambda: mixed.leader() == OURS, "ours leads again")
    mixed.expect(mixed.offset(EARLIEST_OFFSET), 1_200)
    assert mixed.makers() == {JVM, OURS}
    mixed.configure("retention.bytes", str(SEGMENT_BYTES))
    wait_until(lambda: mixed.offset(EARLIEST_OFFSET) > 1_000, "ours deletes what is too much")
    wait_until(lambda: min(mixed.starts()) > 1_000, "what either copied has gone again")
    mixed.jvm.start()
    wait_until(lambda: mixed.isr() == {JVM, OURS}, "the JVM is in sync again")
    mixed.delete()
    wait_until(lambda: mixed.objects() == [], "nothing is left of the topic")


def audit(mixed: MixedCluster) -> None:
    """Look at the bucket. A copy that a kill cut off may be there, whole, beside the one that replaced it: a note."""
    url = (mixed.bucket / "tier" if (mixed.bucket / "tier").exists() else mixed.bucket).as_uri()
    command = [sys.executable, "-m", "stratalog", "tier", "audit", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
