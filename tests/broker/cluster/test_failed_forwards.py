"""A request that the controllers do not answer is answered by the broker as Kafka's brokers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from tests.broker.cluster.failed_forward_cases import cases

from stratalog.broker.cluster.failed_requests import failed_response
from stratalog.errors import KafkaError, RequestTimedOutError, UnknownServerError
from stratalog.wire import ApiKey, read_message, request_class, write_message

GOLDEN: Final = json.loads(
    (Path(__file__).parents[2] / "golden" / "failed_forwards" / "answers.json").read_text("utf-8")
)
ERRORS: Final[tuple[KafkaError, ...]] = (UnknownServerError("why"), RequestTimedOutError("why"))


@pytest.mark.parametrize(("name", "key", "version", "message"), [pytest.param(*each, id=each[0]) for each in cases()])
def test_the_answer_is_kafkas(name: str, key: ApiKey, version: int, message: bytes) -> None:
    request, _ = read_message(request_class(key, version), message)
    reported = [write_message(failed_response(key, version, request, error)).hex() for error in ERRORS]
    assert reported == GOLDEN[name]


def test_kafka_was_asked_for_every_case() -> None:
    assert GOLDEN.keys() == {name for name, *_ in cases()}
