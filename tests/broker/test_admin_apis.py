"""Admin APIs: the same answers as Kafka's, and what only we have (KIP-760) or only a restart can show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.admin import alter, create, described
from tests.broker.admin_cases import APPEND, BROKER, CASES, SET, TOPIC, run
from tests.golden.admin.make import GOLDEN, ask_kafka
from tests.support.reference_kafka import SINGLE_NODE_CONFIG, ReferenceKafka, require_reference_kafka
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.config.broker import BROKER_KEYS
from stratalog.config.kafka_keys import kafka_broker_keys
from stratalog.config.topic import TOPIC_KEYS
from stratalog.wire.api_keys import ApiKey

#: KIP-760 is not in Kafka 4.4.0: its minimum of an hour is out of the way where answers are compared.
LIKE_KAFKA = {"min.topic.segment.ms": "1"}

#: Topic keys whose type or default is another here, and why.
DIFFERENT_TOPIC_KEYS = {
    "segment.bytes": "KIP-1333 makes it a long",
    "min.insync.replicas": "Kafka sets it for the cluster where eligible leader replicas are on",
}
#: Broker keys that are described in another way here, and why.
DIFFERENT_BROKER_KEYS = {
    "log.segment.bytes": "KIP-1333 makes it a long",
    "remote.log.metadata.manager.class.name": "no class of Java",
    **dict.fromkeys(
        ("log.dir", "log.dirs", "listeners", "advertised.listeners", "broker.id", "process.roles"),
        "of the place and the role",
    ),
    **dict.fromkeys(("controller.listener.names", "controller.quorum.voters"), "there is no quorum"),
    **dict.fromkeys(
        (
            "group.consumer.assignment.interval.ms",
            "group.share.assignment.interval.ms",
            "group.streams.assignment.interval.ms",
            "listener.security.protocol.map",
            "sasl.enabled.mechanisms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.mechanism.inter.broker.protocol",
            "ssl.cipher.suites",
            "ssl.client.auth",
            "ssl.enabled.protocols",
            *(
                f"ssl.{store}.{part}"
                for store in ("keystore", "truststore")
                for part in ("location", "password", "type")
            ),
            "ssl.key.password",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.truststore.certificates",
        ),
        "fixed once the broker has started",
    ),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with Broker(data_dir=tmp_path_factory.mktemp("answers"), config=LIKE_KAFKA) as broker:
        found: dict[str, Any] = json.loads(json.dumps(run(broker.bootstrap_servers)))
        return found


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_the_answer_is_kafkas_word_for_word(answers: dict[str, Any], name: str) -> None:
    assert answers[name] == json.loads(GOLDEN.read_text())[name]


@pytest.mark.interop
def test_the_golden_is_what_kafka_answers_today(tmp_path: Path) -> None:
    require_reference_kafka()
    golden = json.loads(GOLDEN.read_text())
    # Kafka answers an alteration before each of its readers has it: what it says right behind one may be of before.
    assert any(ask_kafka(tmp_path / f"kafka-{attempt}") == golden for attempt in range(3))


@pytest.mark.interop
def test_a_topic_is_described_as_by_kafka_key_for_key(tmp_path: Path) -> None:
    require_reference_kafka()
    found = []
    with ReferenceKafka(tmp_path / "kafka") as kafka, Broker(data_dir=tmp_path / "ours") as ours:
        for bootstrap_servers in (kafka.bootstrap_servers, ours.bootstrap_servers):
            with Wire(bootstrap_servers) as wire:
                create(wire, "t")
                # Kafka answers before its broker has the topic from its controller.
                wait_until(lambda wire=wire: described(wire, TOPIC, "t"), "the topic is known")  # type: ignore[misc]
                found.append(described(wire, TOPIC, "t"))
    theirs, ours_ = found
    known_here = [key.name for key in TOPIC_KEYS if not key.name.startswith("internal.")]
    assert set(known_here) == set(ours_)
    assert set(known_here) <= set(theirs)
    for name in set(known_here) - DIFFERENT_TOPIC_KEYS.keys():
        facts = [
            (
                c.value,
                c.read_only,
                c.config_source,
                c.is_sensitive,
                c.config_type,
                [(s.name, s.value, s.source) for s in c.synonyms],
            )
            for c in (theirs[name], ours_[name])
        ]
        assert facts[0] == facts[1], name


@pytest.mark.interop
def test_a_broker_is_described_with_every_key_of_kafka(tmp_path: Path) -> None:
    require_reference_kafka()
    with ReferenceKafka(tmp_path / "kafka") as kafka, Wire(kafka.bootstrap_servers) as wire:
        theirs = described(wire, BROKER, "1")
    with (
        Broker(data_dir=tmp_path / "ours", config=SINGLE_NODE_CONFIG) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        ours = described(wire, BROKER, "1")
    assert set(theirs) <= set(ours)
    different = {
        name
        for name, key in theirs.items()
        if (key.value, key.read_only, key.config_type, key.is_sensitive)
        != (ours[name].value, ours[name].read_only, ours[name].config_type, ours[name].is_sensitive)
    }
    assert different <= set(DIFFERENT_BROKER_KEYS)


# --- ours alone -------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        yield broker


def test_a_changed_config_is_in_force_at_once_and_after_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "t", max_message_bytes="100000")
        assert alter(wire, TOPIC, "t", ("max.message.bytes", SET, "1234")).error_code == 0
        partition = broker.services.partition("t", 0)
        assert partition is not None
        assert partition.log.config.max_message_bytes == 1234
        assert alter(wire, BROKER, "", ("log.retention.ms", SET, "777")).error_code == 0
        assert partition.log.config.retention_ms == 777
    with Broker(data_dir=tmp_path) as broker:
        partition = broker.services.partition("t", 0)
        assert partition is not None
        assert (partition.log.config.max_message_bytes, partition.log.config.retention_ms) == (1234, 777)


def test_a_bad_change_among_good_ones_changes_nothing(wire: Wire) -> None:
    create(wire, "t", retention_ms="60000")
    refused = alter(wire, TOPIC, "t", ("retention.ms", SET, "1"), ("cleanup.policy", APPEND, "shred"))
    assert refused.error_code == 40
    after = described(wire, TOPIC, "t")
    assert (after["retention.ms"].value, after["cleanup.policy"].config_source) == ("60000", 5)


def test_only_validating_makes_nothing(broker: Broker, wire: Wire, tmp_path: Path) -> None:
    topic = {"name": "ghost", "num_partitions": 3, "replication_factor": 1}
    answer = wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=1_000, validate_only=True).topics[0]
    assert (answer.error_code, answer.num_partitions) == (0, 3)
    assert broker.services.metadata.topic("ghost") is None
    assert not list(tmp_path.glob("ghost-*"))


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path, config={"delete.topic.enable": "false"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        create(wire, "kept")
        new = wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "kept", "topic_id": None}], timeout=1_000)
        old = wire.call(ApiKey.DELETE_TOPICS, 2, topic_names=("kept",), timeout=1_000)
        assert (new.responses[0].error_code, old.responses[0].error_code) == (73, 42)
        assert broker.services.metadata.topic("kept") is not None


def test_a_topic_is_deleted_by_its_id_with_its_directories(broker: Broker, wire: Wire, tmp_path: Path) -> None:
    topic_id = create(wire, "t", 2).topic_id
    assert len(list(tmp_path.glob("t-[01]"))) == 2
    deleted = wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id}], timeout=1_000)
    assert (deleted.responses[0].name, deleted.responses[0].error_code) == ("t", 0)
    assert not list(tmp_path.glob("t-[01]"))


def test_tiered_storage_cannot_be_switched_off_without_a_word_on_its_data(tmp_path: Path) -> None:
    config = {"remote.log.storage.system.enable": "true", "remote.log.metadata.topic.num.partitions": "1"}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        assert create(wire, "t", remote_storage_enable="true").error_code == 0
        refused = alter(wire, TOPIC, "t", ("remote.storage.enable", SET, "false"))
        assert refused.error_code == 40
        assert "remote.log.delete.on.disable=true" in refused.error_message


def test_documentation_is_reported_when_it_is_asked_for(wire: Wire) -> None:
    create(wire, "t")
    resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": ("retention.ms",)}
    for asked in (True, False):
        response = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_documentation=asked)
        assert bool(response.results[0].configs[0].documentation) == asked


def test_every_known_key_of_the_broker_is_described(wire: Wire) -> None:
    entries = described(wire, BROKER, "1")
    known = {key.name for key in BROKER_KEYS if not key.name.startswith("internal.")}
    assert known | {key.name for key in kafka_broker_keys()} == set(entries)
    for key in BROKER_KEYS:
        if key.name in entries:
            assert entries[key.name].read_only == (not key.dynamic)


def test_the_cluster_describes_its_one_broker(broker: Broker, wire: Wire) -> None:
    found = wire.call(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1, include_cluster_authorized_operations=True)
    (node,) = found.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    assert (found.cluster_id, found.controller_id) == (broker.services.cluster_id, node.broker_id)
    assert found.cluster_authorized_operations == 8096  # as Kafka 4.4.0 without an authorizer
    assert wire.call(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=2).error_code == 114
    assert wire.call(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=9).error_code == 115


def test_log_directories_tell_sizes_and_room(wire: Wire, tmp_path: Path) -> None:
    create(wire, "a", 2)
    create(wire, "b")
    everything = wire.call(ApiKey.DESCRIBE_LOG_DIRS, 5, topics=None).results[0]
    assert everything.log_dir == str(tmp_path.resolve())
    assert {topic.name for topic in everything.topics} == {"a", "b"}
    assert everything.total_bytes > everything.usable_bytes > 0
    asked = [{"topic": "a", "partitions": (1, 7)}]
    some = wire.call(ApiKey.DESCRIBE_LOG_DIRS, 5, topics=asked).results[0]
    assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in some.topics] == [("a", [1])]


def test_partitions_are_described_page_by_page(wire: Wire) -> None:
    create(wire, "a", 3)
    create(wire, "b", 2)
    seen: list[tuple[str, int]] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = wire.call(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=(),
            response_partition_limit=2,
            cursor=cursor and {"topic_name": cursor.topic_name, "partition_index": cursor.partition_index},
        )
        found = [(topic.name, part.partition_index) for topic in page.topics for part in topic.partitions]
        assert len(found) <= 2
        seen += found
        cursor, pages = page.next_cursor, pages + 1
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
