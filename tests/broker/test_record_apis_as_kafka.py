"""Requests about records get the answers that Apache Kafka 4.4.0 gives, field for field."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.broker.record_cases import run
from tests.golden.record_apis.make import GOLDEN, VERSIONS, ask_kafka
from tests.support.reference_kafka import require_reference_kafka

from stratalog.broker.apis import load_apis
from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

KAFKA: dict[str, Any] = json.loads(GOLDEN.read_text())

#: Error codes that differ, as (ours, Kafka's), and why.
DIFFERENT_CODES = {
    "codec 7": (76, -1, "an unknown codec has an error code; Kafka fails with an unknown server error"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with Broker(data_dir=tmp_path_factory.mktemp("data")) as broker:
        found: dict[str, Any] = json.loads(json.dumps(run(broker.bootstrap_servers)))
        return found


@pytest.mark.parametrize("name", [name for name in KAFKA if name != VERSIONS])
def test_the_answer_is_kafkas(answers: dict[str, Any], name: str) -> None:
    expected = copy.deepcopy(KAFKA[name])
    different = DIFFERENT_CODES.get(name.partition(": ")[2]) if name.startswith("Produce v") else None
    if different is not None:
        ours, theirs, _ = different
        done = expected["responses"][0]["partition_responses"][0]
        assert done["error_code"] == theirs
        done["error_code"] = ours
    assert answers[name] == expected


def test_versions_are_kafkas() -> None:
    # Told with a receiver of clients' metrics only, by both.
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    for key, api in load_apis().items():
        if key in telemetry:
            continue
        ours, theirs = [api.advertised_min, api.max_version], KAFKA[VERSIONS][str(key)]
        assert ours == theirs, ApiKey(key).name


@pytest.mark.interop
def test_the_golden_answers_are_what_kafka_says(tmp_path: Path) -> None:
    require_reference_kafka()
    assert ask_kafka(tmp_path / "kafka") == KAFKA
