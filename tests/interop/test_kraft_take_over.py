"""Three JVM brokers under load become three of ours on their own directories, one by one, and JVM brokers again."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.cli.main import run
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.support import waiting
from tests.support.kraft_cluster import KafkaProcess, KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

NODES = (1, 2, 3)
PLACES = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
TOPIC = "taken"
PATIENCE_S = 90.0
SETTINGS = {"replica.lag.time.max.ms": "5000", "log.segment.bytes": "1048576", "broker.heartbeat.interval.ms": "500"}


def wait_until(condition: Any, what: str) -> None:
    waiting.wait_until(condition, what, seconds=PATIENCE_S)


class OurBroker:
    """`stratalog serve` with the settings file of a JVM broker."""

    def __init__(self, jvm: KafkaProcess) -> None:
        command = [sys.executable, "-m", "stratalog", "serve", "--config", str(jvm.config)]
        log_path = jvm.directory / "ours.log"
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready broker="), log_path.read_text()

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE_S)
        return int(self.process.returncode)


class Load:
    """Writes numbers with acks=all and idempotence, on a thread, until `end`."""

    def __init__(self, bootstrap: str) -> None:
        self.confirmed: list[bytes] = []
        self.refused: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 180_000,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ends.wait(0.02):
            for _ in range(10):
                value = b"%d " % number + bytes(500)
                self._producer.produce(TOPIC, value, partition=number % len(PLACES), callback=self._reported)
                number += 1
            self._producer.poll(0)

    def _reported(self, error: object, message: Any) -> None:
        if error is None:
            self.confirmed.append(bytes(message.value()))
        else:
            self.refused.append(str(error))

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


class TakenCluster:
    def __init__(
        self,
        kraft: KraftCluster,
        settings: Mapping[str, str] = SETTINGS,
        topic_configs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kraft = kraft
        for node in NODES:
            kraft.start_broker(node, settings)
        self.ours: dict[int, OurBroker] = {}
        self.client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": kraft.bootstrap_servers}))
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": at, "broker_ids": each} for at, each in enumerate(PLACES)],
            "configs": [
                {"name": name, "value": value} for name, value in {"min.insync.replicas": "2", **topic_configs}.items()
            ],
        }
        reported = self.client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
        assert [int(each.error_code) for each in reported.topics] == [0]

    def wait_until_whole(self) -> None:
        wait_until(lambda: all(len(isr) == len(NODES) for isr in self._isrs()), "all replicas are in sync")

    def connected(self) -> Cluster:
        return Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.kraft.bootstrap_servers}))

    def _isrs(self) -> list[list[int]]:
        with self.connected() as client:
            reported = client.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0]
        return [list(each.isr_nodes) for each in reported.partitions]

    def check(self, node: int, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
        jvm = self.kraft.brokers[node]
        others = ",".join(each.address for each in self.kraft.brokers.values() if each is not jvm)
        capsys.readouterr()
        run(["cluster", "check", "--data-dir", str(jvm.data_dir), "-b", others, "--json"])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    def hashes(self, partition: int) -> dict[int, str]:
        """Return what each replica's `.log` files hash to, without the space that is reserved in the active one."""
        found = {}
        for node, jvm in self.kraft.brokers.items():
            files = sorted((jvm.data_dir / f"{TOPIC}-{partition}").glob("*.log"))
            found[node] = hashlib.sha256(b"".join(each.read_bytes().rstrip(b"\0") for each in files)).hexdigest()
        return found

    def close(self) -> None:
        self.client.close()
        for each in self.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[TakenCluster]:
    require_reference_kafka()
    with KraftCluster(tmp_path, config={"broker.session.timeout.ms": "6000"}) as kraft:
        made = TakenCluster(kraft)
        yield made
        made.close()


def test_brokers_are_taken_over_in_place_and_given_back(
    taken: TakenCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    taken.wait_until_whole()
    load = Load(taken.kraft.bootstrap_servers)
    wait_until(lambda: len(load.confirmed) > 500, "the load runs")
    assert {each["kind"] for each in taken.check(1, capsys) if each["type"] == "finding"} == {"in-use"}
    for node in NODES:
        taken.kraft.brokers[node].stop()
        wait_until(lambda at=node: taken.check(at, capsys)[-1]["can_be_taken_over"], f"{node} can be taken over")
        taken.ours[node] = OurBroker(taken.kraft.brokers[node])
        taken.wait_until_whole()
    for node in NODES[:2]:
        taken.ours[node].end(signal.SIGKILL)
        taken.ours[node] = OurBroker(taken.kraft.brokers[node])
        taken.wait_until_whole()
    of_ours = len(load.confirmed)
    wait_until(lambda: len(load.confirmed) > of_ours + 500, "brokers of ours alone confirm")
    for node in NODES:
        # The last one is killed: a JVM broker recovers what ours has left.
        how = signal.SIGKILL if node == NODES[-1] else signal.SIGTERM
        assert taken.ours[node].end(how) == (-signal.SIGKILL if how is signal.SIGKILL else 0)
        taken.kraft.brokers[node].start()
        taken.wait_until_whole()
    load.end()
    assert load.refused == []
    values = read_all(taken.kraft.bootstrap_servers, len(load.confirmed))
    assert len(values) == len(set(values)), "nothing twice"
    assert set(values) == set(load.confirmed), "nothing that was confirmed is lost"
    for partition in range(len(PLACES)):
        wait_until(lambda at=partition: len(set(taken.hashes(at).values())) == 1, f"replicas of {partition} are equal")


def read_all(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not used", "enable.auto.commit": False})
    consumer.assign([KafkaPartition(TOPIC, at, 0) for at in range(len(PLACES))])
    values: list[bytes] = []

    def are_there() -> bool:
        values.extend(bytes(each.value()) for each in consumer.consume(5000, 0.5) if each.error() is None)
        return len(values) >= count

    wait_until(are_there, f"{count} records are read")
    consumer.close()
    return values
