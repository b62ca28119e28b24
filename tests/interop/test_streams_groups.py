"""Kafka Streams, unmodified, leaves its tasks to our broker; Kafka's own command looks after its groups."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import stratalog
from tests.support.reference_jars import STREAMS_JARS, classpath, java
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = [pytest.mark.interop, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "WordCount.java"
COMMAND = "org.apache.kafka.tools.streams.StreamsGroupCommand"
GROUP = "wordcount"
PARTITIONS = 4
WAIT_S = 90.0


class Application:
    """An instance of the application, with two threads, in a process of its own."""

    def __init__(self, bootstrap: str, directory: Path, guarantee: str, port: int) -> None:
        command = [java(), "-Xmx300m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath(STREAMS_JARS)]
        arguments = [bootstrap, GROUP, str(directory / str(port)), guarantee, str(port)]
        self._process = subprocess.Popen(
            [*command, str(PROGRAM), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        #: Everything that it has printed.
        self.printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed.append(line.strip())
            self._lines.put(self.printed[-1])

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def expect(self, beginning: str) -> str:
        """Return the next line that begins so."""
        seen = []
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            try:
                seen.append(self._lines.get(timeout=0.5))
            except queue.Empty:
                continue
            if seen[-1].startswith(beginning):
                return seen[-1]
        raise TimeoutError(f"{beginning} did not come: {seen[-20:]}")

    def expect_tasks(self, active: int, standby: int) -> None:
        deadline = time.monotonic() + WAIT_S
        reported = ""
        while time.monotonic() < deadline:
            self._say("tasks")
            reported = self.expect("TASKS")
            if reported == f"TASKS {active} {standby}":
                return
            time.sleep(0.5)
        raise TimeoutError(f"{reported}, not {active} and {standby}")

    def stop(self) -> None:
        self._say("stop")
        assert self.expect("CLOSED") == "CLOSED true"
        self._process.wait(30)

    def kill(self) -> None:
        """End the process, if it is still there, and close what leads to it."""
        with self._process:
            self._process.kill()
            self._reader.join(30)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[stratalog.Broker]:
    require_reference_kafka(STREAMS_JARS)
    config = {
        "offsets.topic.num.partitions": "1",
        "group.streams.initial.rebalance.delay.ms": "0",
        "group.streams.num.standby.replicas": "1",
    }
    with stratalog.Broker(data_dir=tmp_path / "data", config=config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")]).values():
            made.result(60)
        yield broker


def send(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 3})
    for number in range(count):
        producer.produce("lines", f"alpha beta w{number % 7}")
    assert producer.flush(WAIT_S) == 0


def counted(bootstrap: str, until: int) -> dict[str, int]:
    """Return the last count of each word, read once `alpha` and `beta` have come so far."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )
    consumer.subscribe(["counts"])
    counts: dict[str, int] = {}
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline and not counts.get("alpha") == counts.get("beta") == until:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                counts[key.decode()] = max(counts.get(key.decode(), 0), int(value))
    finally:
        consumer.close()
    return counts


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_two_instances_count_words_come_and_go_and_lose_nothing(
    broker: stratalog.Broker, tmp_path: Path, guarantee: str
) -> None:
    command = ["--bootstrap-server", broker.bootstrap_servers]
    applications = [Application(broker.bootstrap_servers, tmp_path, guarantee, 1001)]
    try:
        first = applications[0]
        send(broker.bootstrap_servers, 50)
        first.expect_tasks(2 * PARTITIONS, 0)
        applications.append(Application(broker.bootstrap_servers, tmp_path, guarantee, 1002))
        second = applications[1]
        first.expect_tasks(PARTITIONS, PARTITIONS // 2)
        second.expect_tasks(PARTITIONS, PARTITIONS // 2)
        send(broker.bootstrap_servers, 50)
        described = tool(COMMAND, [*command, "--describe", "--group", GROUP, "--members", "--verbose"])
        assert described.count("ACTIVE:") == 2 * described.count("TARGET-ACTIVE:") >= 8
        second.stop()
        first.expect_tasks(2 * PARTITIONS, 0)
        send(broker.bootstrap_servers, 50)
        counts = counted(broker.bootstrap_servers, 150)
        assert (counts["alpha"], counts["beta"]) == (150, 150)
        assert "Stable" in tool(COMMAND, [*command, "--list", "--state"])
        first.stop()
        reset = tool(
            COMMAND, [*command, "--reset-offsets", "--all-input-topics", "--to-earliest", "--group", GROUP, "--execute"]
        )
        assert reset.count("lines") == PARTITIONS
        assert "successful" in tool(COMMAND, [*command, "--delete", "--group", GROUP])
    finally:
        for application in applications:
            application.kill()
