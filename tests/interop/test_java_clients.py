"""Kafka's own command-line clients, unmodified, talk to our broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import stratalog
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = pytest.mark.interop

TOPIC = "java"
RECORDS = 2_000


@pytest.fixture(scope="module", autouse=True)
def _kafka_tools() -> None:
    require_reference_kafka()


def run(broker: stratalog.Broker, name: str, *args: str, stdin: str | None = None) -> str:
    return tool(f"org.apache.kafka.tools.{name}", ["--bootstrap-server", broker.bootstrap_servers, *args], stdin=stdin)


def create(broker: stratalog.Broker, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
    config = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=config)])[TOPIC].result(60)


def events(printed: str, name: str) -> list[dict[str, Any]]:
    """The verifiable clients tell what happens as a JSON object a line."""
    lines = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    return [line for line in lines if line["name"] == name]


def test_console_producers_of_every_codec_to_a_console_consumer(broker: stratalog.Broker) -> None:
    create(broker)
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        lines = [f"key-{i}\tvalue {i} of {codec}" for i in range(300)]
        options = ["--compression-codec", codec, "--reader-property", "parse.key=true"]
        run(broker, "ConsoleProducer", "--topic", TOPIC, *options, stdin="\n".join(lines))
        sent += lines
    printed = run(
        broker,
        "consumer.ConsoleConsumer",
        *("--topic", TOPIC, "--from-beginning", "--max-messages", str(len(sent)), "--timeout-ms", "30000"),
        *("--formatter-property", "print.key=true"),
    )
    assert printed.splitlines() == sent


def test_a_group_of_the_verifiable_consumer_gets_what_the_verifiable_producer_was_acknowledged(
    broker: stratalog.Broker,
) -> None:
    create(broker, partitions=3)
    produced = run(broker, "VerifiableProducer", "--topic", TOPIC, "--max-messages", str(RECORDS), "--acks", "-1")
    acknowledged = {
        (event["partition"], event["offset"], event["value"]) for event in events(produced, "producer_send_success")
    }
    assert len(acknowledged) == RECORDS
    consumed = run(
        broker,
        "VerifiableConsumer",
        *("--topic", TOPIC, "--group-id", "readers", "--group-protocol", "classic"),
        *("--max-messages", str(RECORDS), "--reset-policy", "earliest", "--verbose"),
    )
    got = [(event["partition"], event["offset"], event["value"]) for event in events(consumed, "record_data")]
    assert len(got) == RECORDS
    assert set(got) == acknowledged
    assert all(event["success"] for event in events(consumed, "offsets_committed"))
    assert events(consumed, "partitions_assigned")[0]["partitions"]


def test_offsets_by_time_and_by_name(broker: stratalog.Broker) -> None:
    create(broker, retention_ms="-1")
    sent = run(
        broker,
        "VerifiableProducer",
        *(
            "--topic",
            TOPIC,
            "--max-messages",
            "10",
            "--message-create-time",
            "1700000000000",
            "--throughput",
            "1000",
        ),
    )
    assert len(events(sent, "producer_send_success")) == 10

    def offset(time: str) -> str:
        return run(broker, "GetOffsetShell", "--topic", TOPIC, "--time", time).strip()

    assert offset("earliest") == f"{TOPIC}:0:0"
    assert offset("latest") == f"{TOPIC}:0:10"
    assert offset("1600000000000") == f"{TOPIC}:0:0"


def test_the_performance_tools_finish(broker: stratalog.Broker) -> None:
    create(broker, partitions=2)
    produced = run(
        broker,
        "ProducerPerformance",
        *("--topic", TOPIC, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", "enable.idempotence=true"),
    )
    assert "20000 records sent" in produced
    consumed = run(broker, "ConsumerPerformance", "--topic", TOPIC, "--num-records", "20000", "--timeout", "30000")
    columns = consumed.strip().splitlines()[-1].split(", ")
    assert columns[4] == "20000"


def test_topics_are_made_described_and_deleted(broker: stratalog.Broker) -> None:
    config = ["--config", "segment.bytes=1048576"]
    run(broker, "TopicCommand", "--create", "--topic", TOPIC, "--partitions", "2", *config)
    printed = run(broker, "TopicCommand", "--describe", "--topic", TOPIC)
    assert "PartitionCount: 2" in printed
    assert "segment.bytes=1048576" in printed
    assert "Leader: none" not in printed
    assert TOPIC in run(broker, "TopicCommand", "--list").split()
    run(broker, "TopicCommand", "--delete", "--topic", TOPIC)
    assert TOPIC not in run(broker, "TopicCommand", "--list").split()
