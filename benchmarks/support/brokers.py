"""The two brokers that are compared, behind one face: start, address, process id, topics, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.reference_kafka import KAFKA_VERSION, ReferenceKafka, free_port

from benchmarks.support import wire
from benchmarks.support.client import Client

START_TIMEOUT_S = 120.0

#: What kafka-server-start.sh gives the JVM.
KAFKA_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

#: Timestamps are old, a topic that is thrown away goes at once, and batches of 10 MB are taken.
TOPIC_CONFIG: Mapping[str, str] = {"retention.ms": "-1", "file.delete.delay.ms": "0", "max.message.bytes": "20971520"}


class Broker(ABC):
    """A broker in a process of its own."""

    name: str

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]: ...

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def prepare(self) -> None:
        """What must be there before the first start (`start` sees to it when this was not called)."""

    @abstractmethod
    def start(self) -> None:
        """Return once a request is answered."""

    @abstractmethod
    def stop(self) -> None: ...

    @property
    def bootstrap_servers(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Return once the first partition is served; with more of them, once all have a leader."""
        admin = self._admin()
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(TOPIC_CONFIG))
        admin.create_topics([new], request_timeout=START_TIMEOUT_S)[topic].result(START_TIMEOUT_S)
        while any(each.leader < 0 for each in admin.list_topics(topic, 60).topics[topic].partitions.values()):
            time.sleep(0.1)
        with Client(self.address) as client:
            client.wait_for_partition(topic)

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()  # closed when nothing holds it, its requests with it
        admin.delete_topics([topic])[topic].result(60)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 3})

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"/proc/{self.pid}/status has no VmRSS")

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Stratalog(Broker):
    """`stratalog serve` as a user starts it."""

    name = "stratalog"

    def __init__(self, directory: Path, config: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._config = dict(config or {})
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def command(self) -> Sequence[str]:
        listen = [f"--listen=127.0.0.1:{self._port}", "--web=off", f"--data-dir={self._directory / 'data'}"]
        return [sys.executable, "-m", "stratalog", "serve", *listen, *self._settings()]

    def _settings(self) -> list[str]:
        return [f"--set={key}={value}" for key, value in self._config.items()]

    def prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        self.prepare()
        log = self._directory / "stratalog.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(self.address):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"stratalog did not serve:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.005)

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class Kafka(Broker):
    """Apache Kafka with the JVM options of its own start script."""

    name = f"Kafka {KAFKA_VERSION}"

    def __init__(self, directory: Path, config: Mapping[str, str] | None = None, port: int | None = None) -> None:
        self._kafka = ReferenceKafka(directory, port, config, jvm_options=KAFKA_JVM_OPTIONS)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._kafka.port

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def prepare(self) -> None:
        self._kafka.prepare()

    def start(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop(START_TIMEOUT_S * 3)  # it flushes each of many partitions


def _answers(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=5) as sock:
            sock.sendall(wire.api_versions_request())
            return len(sock.recv(4)) == 4
    except OSError:
        return False
