"""Clients with one right each get the answers that Kafka gives them; `tests.golden.access.make` wrote those down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.golden.access.make import CONFIG, GOLDEN, ask_kafka
from tests.support.access_cases import answers, prepare
from tests.support.reference_kafka import require_reference_kafka

from stratalog.broker.access import GUARDS
from stratalog.broker.apis import load_apis
from stratalog.broker.server import Broker
from stratalog.config import LARGE_SEGMENTS_LEVEL
from stratalog.wire.api_keys import ApiKey

OURS = {
    **CONFIG,
    "stratalog.initial.metadata.version": LARGE_SEGMENTS_LEVEL,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


def by_client(lines: dict[str, list[str]]) -> dict[str, str]:
    return {client: line for line, clients in lines.items() for client in clients}


def test_every_answer_to_every_client_is_kafkas() -> None:
    kafkas = json.loads(GOLDEN.read_text())
    with Broker(config=OURS) as broker:
        ours = answers(broker.bootstrap_servers, prepare(broker.bootstrap_servers))
    kafkas = {title: lines for title, lines in kafkas.items() if ApiKey[title.split()[0]] in load_apis()}
    assert ours.keys() >= kafkas.keys()
    differing = {
        (title, client): (line, by_client(ours[title])[client])
        for title, lines in kafkas.items()
        for client, line in by_client(lines).items()
        if by_client(ours[title])[client] != line
    }
    assert differing == {}


def test_every_api_that_is_served_says_what_it_asks() -> None:
    served = {api.key for api in load_apis().values()}
    assert served - GUARDS.keys() == set()


@pytest.mark.interop
@pytest.mark.soak
def test_the_golden_answers_are_what_kafka_says(tmp_path: Path) -> None:
    require_reference_kafka()
    assert ask_kafka(tmp_path / "kafka") == json.loads(GOLDEN.read_text())
