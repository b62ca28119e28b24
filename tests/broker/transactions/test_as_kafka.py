"""Requests about transactions get the answers that Apache Kafka 4.4.0 gives, field for field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.broker.transactions.cases import run
from tests.golden.transactions.make import GOLDEN, ask_kafka
from tests.support.reference_kafka import require_reference_kafka

from stratalog.broker.server.server import Broker

KAFKA: dict[str, Any] = json.loads(GOLDEN.read_text())
CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with Broker(data_dir=tmp_path_factory.mktemp("data"), config=CONFIG) as broker:
        found: dict[str, Any] = json.loads(json.dumps(run(broker.bootstrap_servers)))
        return found


def test_every_case_was_asked(answers: dict[str, Any]) -> None:
    assert list(answers) == list(KAFKA)


@pytest.mark.parametrize("name", list(KAFKA))
def test_the_answer_is_kafkas(answers: dict[str, Any], name: str) -> None:
    assert answers[name] == KAFKA[name]


@pytest.mark.interop
def test_the_golden_answers_are_what_kafka_says(tmp_path: Path) -> None:
    require_reference_kafka()
    assert ask_kafka(tmp_path / "kafka") == KAFKA
