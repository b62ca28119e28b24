"""A broker of ours with two log directories in a cluster: one of them fails, and is replaced by an empty one."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from stratalog.engine.dirs import format_dir
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.support import waiting
from tests.support.kraft_cluster import KraftCluster, low_port
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

JVM, OURS = 1, 7
PARTITIONS = 4
PATIENCE_S = 60.0


def wait_until(condition: Any, what: str) -> None:
    waiting.wait_until(condition, what, seconds=PATIENCE_S)


class TwoDirectories:
    """One JVM broker, and one of ours with two directories."""

    def __init__(self, cluster: KraftCluster) -> None:
        self.cluster = cluster
        jvm = cluster.start_broker(JVM, {"replica.lag.time.max.ms": "5000"})
        self.home = cluster.directory / "ours"
        self.dirs = [self.home / "first", self.home / "second"]
        self.home.mkdir()
        for each in self.dirs:
            format_dir(each, cluster_id=cluster.cluster_id, node_id=OURS)
        port = low_port()
        properties = cluster.broker_properties(OURS, port, self.home) | {
            "log.dirs": ",".join(map(str, self.dirs)),
        }
        (self.home / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.bootstrap = f"{jvm.address},127.0.0.1:{port}"
        self.client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": jvm.address}))
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "stratalog", "serve", "--config", str(self.home / "server.properties")]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready broker="), (self.home / "log").read_text()

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE_S)

    def partitions(self) -> list[Any]:
        reported = self.client.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": "spread"}]).topics[0]
        return sorted(reported.partitions, key=lambda each: each.partition_index)

    def leaders(self) -> list[int]:
        return [int(each.leader_id) for each in self.partitions()]

    def lying_in(self, directory: Path) -> set[int]:
        return {int(each.name.rpartition("-")[2]) for each in directory.glob("spread-*")}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoDirectories]:
    require_reference_kafka()
    with KraftCluster(tmp_path) as cluster:
        made = TwoDirectories(cluster)
        yield made
        made.client.close()
        if made.process.poll() is None:
            made.end(signal.SIGKILL)


def write(two: TwoDirectories, count: int) -> None:
    """Write 10 KB to each partition, `count` times, each confirmed by all in sync."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": two.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1})
    for _ in range(count):
        for partition in range(PARTITIONS):
            producer.produce(
                "spread",
                bytes(10_000),
                partition=partition,
                callback=lambda error, _: None if error is None else failed.append(str(error)),
            )
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def test_a_directory_fails_and_an_empty_one_takes_its_place(two: TwoDirectories) -> None:
    topic = {
        "name": "spread",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": at, "broker_ids": [OURS, JVM]} for at in range(PARTITIONS)],
        "configs": [{"name": "segment.bytes", "value": "1048576"}],
    }
    reported = two.client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
    assert [int(each.error_code) for each in reported.topics] == [0]
    wait_until(lambda: two.leaders() == [OURS] * PARTITIONS, "ours leads all")
    write(two, 20)
    first, second = map(two.lying_in, two.dirs)
    assert first | second == set(range(PARTITIONS))
    assert len(first) == len(second) == PARTITIONS // 2, "new replicas are spread over the directories"

    shutil.rmtree(two.dirs[1])
    write(two, 300)
    wanted = [OURS if at in first else JVM for at in range(PARTITIONS)]
    wait_until(lambda: two.leaders() == wanted, "what lay in the failed directory is led elsewhere")
    assert two.process.poll() is None

    two.end(signal.SIGTERM)
    two.dirs[1].mkdir()
    two.start()
    wait_until(lambda: all(len(each.isr_nodes) == 2 for each in two.partitions()), "all replicas are in sync again")
    elected = two.client.any.call(ApiKey.ELECT_LEADERS, (2, 2), election_type=0, topic_partitions=None, timeout=20_000)
    assert int(elected.error_code) == 0
    wait_until(lambda: two.leaders() == [OURS] * PARTITIONS, "the replicas in the new directory may lead")
    write(two, 20)
