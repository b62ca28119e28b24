"""Groups of the new protocol get the answers and the records that Apache Kafka 4.4.0 gives them."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.broker.groups.consumer_cases import CONFIG, POLICIES, one_way, run
from tests.broker.groups.modern_cases import Played, check_read_and_written_back, play
from tests.golden.consumer_groups.make import ANSWERS, RECORDS
from tests.support.goldens import as_json, read_records

from stratalog.broker.groups.consumer.records import decode_change, encode_change
from stratalog.broker.groups.consumer.values import ChangeKind, CurrentAssignment
from stratalog.broker.groups.modern import GroupEpoch, TopicHashes
from stratalog.broker.metadata.store import MetadataStore
from stratalog.broker.metadata.topic_map import Topic
from stratalog.broker.server.server import Broker

KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())
STORED = read_records(RECORDS)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Our answers, and the records behind them."""
    answers, records = play(tmp_path_factory.mktemp("data"), CONFIG, run)
    for policy in POLICIES:
        with Broker(config={**CONFIG, "group.consumer.migration.policy": policy}) as broker:
            found = as_json(run(broker.bootstrap_servers, [one_way]))
        answers |= {f"{policy}: {step}": answer for step, answer in found.items()}
    return answers, records


@pytest.mark.parametrize("step", KAFKA)
def test_the_answer_is_kafkas(played: Played, step: str) -> None:
    assert played[0][step] == KAFKA[step]


def test_no_step_is_left_out(played: Played) -> None:
    assert list(played[0]) == list(KAFKA)


def test_kafkas_records_are_read_and_written_back_byte_for_byte() -> None:
    check_read_and_written_back(STORED, set(ChangeKind) - {ChangeKind.PARTITION_METADATA}, decode_change, encode_change)


def _shape(records: list[tuple[bytes, bytes | None]]) -> list[tuple[str, ChangeKind, bool]]:
    """The records without what differs from run to run."""
    found = [decode_change(key, value) for key, value in records]
    return [(each[0], each[1].kind, each[1].value is None) for each in found if each is not None]


def test_we_write_the_records_that_kafka_writes(
    played: tuple[object, list[tuple[bytes, bytes | None]]],
) -> None:
    assert sorted(_shape(played[1])) == sorted(_shape(STORED))


def test_the_hash_of_the_topics_is_kafkas() -> None:
    """All members of this group are subscribed to one topic, whose id their assignments tell."""
    changes = [found[1] for key, value in STORED if (found := decode_change(key, value)) and found[0] == "static"]
    values = [each.value for each in changes]
    ids = {topic_id for value in values if isinstance(value, CurrentAssignment) for topic_id in value.assigned}
    hashes = {value.metadata_hash for value in values if isinstance(value, GroupEpoch)}
    (topic_id,) = ids
    topics = MagicMock(MetadataStore)
    topics.topic.side_effect = {"three": Topic("three", topic_id, 3, {}, 0)}.get
    assert {TopicHashes(topics, None).of_group(["three", "gone"]), 0} >= hashes
    assert len(hashes - {0}) == 1
