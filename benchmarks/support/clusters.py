"""The two clusters that are compared, behind one face: a controller of Kafka's and three brokers on loopback.

Both have the same controller, with the same settings, and the same settings of brokers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.kraft_cluster import KraftCluster, low_port
from tests.support.reference_jars import BROKER_JARS, classpath, java
from tests.support.reference_kafka import KAFKA_VERSION

from benchmarks.support import wire
from benchmarks.support.brokers import KAFKA_JVM_OPTIONS, TOPIC_CONFIG
from benchmarks.support.client import Client
from stratalog.engine.dirs import format_dir
from stratalog.errors import StratalogError
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions

NODES = (1, 2, 3)
PATIENCE_S = 300.0
HEARTBEAT_MS = 100
_CHECK_S = 0.02
_SETTINGS: Mapping[str, str] = {
    # A session ends so long after the last heartbeat: many of them, so that it makes no difference when a broker dies.
    "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "auto.create.topics.enable": "false",
}


class Node(ABC):
    """One broker of a cluster, in a process of its own."""

    def __init__(self, cluster: KraftCluster, number: int, directory: Path) -> None:
        self.number = number
        self.address = "127.0.0.1", low_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        format_dir(directory / "data", cluster_id=cluster.cluster_id, node_id=number)
        settings = {**cluster.broker_properties(number, self.address[1], directory / "data"), **_SETTINGS}
        self._file = directory / "server.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def begin(self) -> None:
        """Start the process; it does not serve yet."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait_until_served(self) -> None:
        """Return once a request is answered. RuntimeError with the end of its log if it ends before that."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(self.address):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                log = (self._directory / "log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"broker {self.number} does not serve:\n{log[-2000:]}")
            time.sleep(0.005)

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(text.partition("VmRSS:")[2].split()[0]) * 1024


class StratalogNode(Node):
    """`stratalog serve` as a user starts it in a cluster."""

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", "stratalog", "serve", "--web=off", "--config", str(self._file)]


class KafkaNode(Node):
    """Apache Kafka with the JVM options of its own start script."""

    def _command(self) -> Sequence[str]:
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [java(), *KAFKA_JVM_OPTIONS, level, "-cp", classpath(BROKER_JARS), "kafka.Kafka", str(self._file)]


class BrokerCluster:
    """One controller and three brokers. A session of a broker lasts `session_ms`."""

    def __init__(self, name: str, directory: Path, node: type[Node], session_ms: int) -> None:
        self.name = name
        config = {"broker.session.timeout.ms": str(session_ms)}
        self._kraft = KraftCluster(directory, config=config)
        self.nodes = {number: node(self._kraft, number, directory / f"broker-{number}") for number in NODES}

    def __enter__(self) -> BrokerCluster:
        self._kraft.__enter__()
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.nodes.values():
            each.kill()
        self._kraft.__exit__(None, None, None)

    def start(self) -> None:
        """Start all brokers at once; return when all of them are alive to the controller."""
        for each in self.nodes.values():
            each.begin()
        for each in self.nodes.values():
            each.wait_until_served()
        self.wait_until(lambda client: len(client.broker_ids()) == len(NODES), "all brokers are alive")

    def stop(self) -> None:
        """Stop all brokers at once, as an operator does."""
        for each in self.nodes.values():
            each.ask_to_stop()
        for each in self.nodes.values():
            each.wait_until_stopped()

    def cpu_seconds(self) -> dict[int, float]:
        return {number: each.cpu_seconds() for number, each in self.nodes.items()}

    def resident_bytes(self) -> float:
        """Memory of a broker, in the middle of the three."""
        return float(sorted(each.resident_bytes() for each in self.nodes.values())[len(NODES) // 2])

    # --- topics -------------------------------------------------------------------------------------------------------

    def create(self, topic: str, places: Sequence[Sequence[int]], **configs: str) -> None:
        """Create a topic with its partitions on these brokers, the leader first; return once each leader serves."""
        wanted = {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": at, "broker_ids": each} for at, each in enumerate(places)],
            "configs": [{"name": key, "value": value} for key, value in {**TOPIC_CONFIG, **configs}.items()],
        }
        with self._asked() as client:
            answer = client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[wanted], timeout=60_000)
        _check(int(each.error_code) for each in answer.topics)
        for partition in {brokers[0]: at for at, brokers in enumerate(places)}.values():
            with Client(self.nodes[places[partition][0]].address) as at_leader:
                at_leader.wait_for_partition(topic, partition)
        self.wait_until_whole(topic, len(places[0]))

    def delete(self, topic: str) -> None:
        with self._asked() as client:
            answer = client.any.call(
                ApiKey.DELETE_TOPICS, (6, 6), topics=[{"name": topic, "topic_id": None}], timeout=60_000
            )
        _check(int(each.error_code) for each in answer.responses)

    def reassign(self, topic: str, places: Sequence[Sequence[int]]) -> None:
        """Have the partitions of a topic on these brokers; it is not waited for."""
        wanted = [{"partition_index": at, "replicas": each} for at, each in enumerate(places)]
        with self._asked() as client:
            answer = client.any.call(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                (0, 0),
                topics=[{"name": topic, "partitions": wanted}],
                timeout=60_000,
            )
        _check([int(answer.error_code), *(int(p.error_code) for each in answer.responses for p in each.partitions)])

    def wait_until_whole(self, topic: str, replicas: int, alive: Sequence[int] = NODES) -> None:
        """Return once every partition has so many replicas, all in sync."""

        def is_whole(client: _Asked) -> bool:
            partitions = client.partitions(topic)
            return bool(partitions) and all(len(each.isr_nodes) == replicas for each in partitions)

        self.wait_until(is_whole, f"{topic} is in sync", alive)

    def wait_until(
        self, condition: Callable[[_Asked], object], what: str, alive: Sequence[int] = NODES, check_s: float = _CHECK_S
    ) -> None:
        """Return once the brokers answer so. RuntimeError if they do not in time."""
        deadline = time.monotonic() + PATIENCE_S
        with self._asked(alive) as client:
            while True:
                with contextlib.suppress(StratalogError, OSError):  # one that starts or ends
                    if condition(client):
                        return
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name}: waited {PATIENCE_S:.0f} s until {what}")
                time.sleep(check_s)

    def _asked(self, alive: Sequence[int] = NODES) -> _Asked:
        return _Asked([self.nodes[number].address for number in alive])


class _Asked:
    """Connections for questions on the metadata."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        servers = ",".join(f"{host}:{port}" for host, port in addresses)
        self._cluster = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": servers}))

    def __enter__(self) -> _Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    @property
    def any(self) -> Any:
        return self._cluster.any

    def broker_ids(self) -> list[int]:
        answer = self.any.call(ApiKey.METADATA, (12, 12), topics=[])
        return [int(each.node_id) for each in answer.brokers]

    def partitions(self, topic: str) -> list[Any]:
        """In the order of their numbers; none while the topic is not known."""
        (found,) = self.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": topic}]).topics
        return sorted(found.partitions, key=lambda each: int(each.partition_index))

    def leader(self, topic: str) -> int:
        """Of the first partition; -1 for none."""
        partitions = self.partitions(topic)
        return int(partitions[0].leader_id) if partitions else -1


def stratalog_cluster(directory: Path, session_ms: int) -> BrokerCluster:
    return BrokerCluster("stratalog", directory, StratalogNode, session_ms)


def kafka_cluster(directory: Path, session_ms: int) -> BrokerCluster:
    return BrokerCluster(f"Kafka {KAFKA_VERSION}", directory, KafkaNode, session_ms)


def _check(codes: Any) -> None:
    wrong = next((code for code in codes if code), None)
    if wrong is not None:
        raise RuntimeError(f"answered error code {wrong}")


def _answers(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=5) as sock:
            sock.sendall(wire.api_versions_request())
            return len(sock.recv(4)) == 4
    except OSError:
        return False
