"""Requests about the cluster get the answers that Apache Kafka 4.4.0 gives with one node."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.broker.cluster_cases import LOGGER, run
from tests.golden.cluster.make import GOLDEN, ask_kafka
from tests.support.reference_kafka import require_reference_kafka
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

KAFKA: dict[str, Any] = json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Broker(data_dir=tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture(scope="module")
def answers(broker: Broker) -> dict[str, Any]:
    loggers = (logging.root, logging.getLogger(LOGGER))
    levels = [logger.level for logger in loggers]
    try:
        found: dict[str, Any] = json.loads(json.dumps(run(broker.bootstrap_servers)))
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    return found


@pytest.mark.parametrize("name", KAFKA)
def test_the_answer_is_kafkas(answers: dict[str, Any], name: str) -> None:
    assert answers[name] == KAFKA[name]


@pytest.mark.interop
def test_the_golden_answers_are_what_kafka_says(tmp_path: Path) -> None:
    require_reference_kafka()
    assert ask_kafka(tmp_path / "kafka") == KAFKA


def test_the_only_broker_stays_registered(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=broker.services.node_id)
        assert (answer.error_code, "is the only one" in answer.error_message) == (42, True)
        assert [entry.broker_id for entry in wire.call(ApiKey.DESCRIBE_CLUSTER, 0).brokers] == [broker.services.node_id]


@pytest.mark.parametrize(("election", "code"), [(0, 80), (1, 83)])
def test_no_leader_is_elected_for_a_partition_whose_directory_has_failed(
    tmp_path: Path, election: int, code: int
) -> None:
    with Broker(data_dir=[tmp_path / "a", tmp_path / "b"]) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("t", 2)
        directory = (tmp_path / "b").resolve()
        broker.services.logs.dirs.fail(directory, "pulled out")
        broker.services.logs.put_offline(directory)
        (topic,) = wire.call(
            ApiKey.ELECT_LEADERS,
            2,
            election_type=election,
            topic_partitions=[{"topic": "t", "partitions": (0, 1)}],
            timeout=5000,
        ).replica_election_results
        assert sorted(result.error_code for result in topic.partition_result) == sorted((84, code))
