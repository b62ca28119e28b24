"""Kafka's own tools move a partition between our log directories; the same wrong requests get the same answers."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import confluent_kafka
import pytest

from stratalog.broker.server import Broker
from stratalog.wire.api_keys import ApiKey
from tests.broker.admin import create
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka, tool
from tests.support.wire import Wire

pytestmark = [pytest.mark.interop, pytest.mark.soak]


def move(wire: Wire, directory: Path, topic: str, *numbers: int) -> list[int]:
    dirs = [{"path": str(directory), "topics": [{"name": topic, "partitions": numbers}]}]
    (answer,) = wire.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs).results
    assert answer.topic_name == topic
    return [int(each.error_code) for each in answer.partitions]


def answers(bootstrap_servers: str, one: Path, two: Path) -> list[list[int]]:
    with Wire(bootstrap_servers) as wire:
        create(wire, "t", 2)
        create(wire, "x" * 230)
        return [
            move(wire, two, "t", 0),
            move(wire, one, "t", 0, 1),
            move(wire, one.parent / "three", "t", 0),
            move(wire, one, "nowhere", 0),
            move(wire, one.parent / "three", "nowhere", 0),
            move(wire, one, "t", 7),
            move(wire, one, "t", -1),
            move(wire, one, "x" * 230, 0),
            move(wire, Path("one"), "t", 0),
        ]


def test_wrong_requests_are_answered_as_by_kafka(tmp_path: Path) -> None:
    require_reference_kafka()
    theirs, ours = tmp_path / "kafka", tmp_path / "ours"
    with ReferenceKafka(theirs, config={"log.dirs": f"{theirs / 'one'},{theirs / 'two'}"}) as kafka:
        expected = answers(kafka.bootstrap_servers, theirs / "one", theirs / "two")
    with Broker(data_dir=[ours / "one", ours / "two"]) as broker:
        assert answers(broker.bootstrap_servers, ours / "one", ours / "two") == expected


def test_kafkas_tools_move_a_partition_that_is_produced_to(tmp_path: Path) -> None:
    require_reference_kafka()
    with Broker(data_dir=[tmp_path / "one", tmp_path / "two"]) as broker:
        broker.create_topic("t", 1)
        partition = broker.services.partition("t", 0)
        assert partition is not None
        before = partition.log.directory.parent
        after = tmp_path.resolve() / ("two" if before.name == "one" else "one")
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        failures: list[str] = []
        sent, over = 0, threading.Event()

        def reported(error: object, _: object) -> None:
            if error is not None:
                failures.append(str(error))

        def produce() -> None:
            nonlocal sent
            while not over.is_set():
                producer.produce("t", b"%d" % sent, on_delivery=reported)
                sent += 1
                producer.poll(0.001)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            wanted = {"topic": "t", "partition": 0, "replicas": [broker.services.node_id], "log_dirs": [str(after)]}
            file = tmp_path / "plan.json"
            file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
            name = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
            common = ["--bootstrap-server", broker.bootstrap_servers, "--reassignment-json-file", str(file)]
            tool(name, [*common, "--execute", "--replica-alter-log-dirs-throttle", "100000000"])
            for _ in range(600):
                if partition.log.directory.parent == after:
                    break
                time.sleep(0.05)
            said = tool(name, [*common, "--verify"])
        finally:
            over.set()
            thread.join()
        producer.flush()
        assert "completed successfully" in said
        reported_dirs = tool(
            "org.apache.kafka.tools.LogDirsCommand",
            ["--bootstrap-server", broker.bootstrap_servers, "--describe", "--topic-list", "t"],
        )
        described = json.loads(next(line for line in reported_dirs.splitlines() if line.startswith("{")))
        places = {
            each["logDir"]: [(part["isFuture"], part["offsetLag"]) for part in each["partitions"]]
            for each in described["brokers"][0]["logDirs"]
        }
        assert places == {str(before): [], str(after): [(False, 0)]}
        assert not failures
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[bytes] = []
        while len(found) < sent:
            found += [message.value() for message in consumer.consume(1000, 5) if message.error() is None]
        consumer.close()
        assert found == [b"%d" % number for number in range(sent)]
