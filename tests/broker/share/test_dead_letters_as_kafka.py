"""Share groups tell dead-letter topics (KIP-1191) what Apache Kafka 4.4.0 tells them, and store the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.broker.share.dead_letter_cases import CONFIG, letters, run
from tests.golden.share_dead_letters.make import ANSWERS, LETTERS, RECORDS
from tests.support.consumer_offsets import stored_records
from tests.support.goldens import read_records

from stratalog.broker.server.server import Broker
from stratalog.broker.share import decode_share_key, decode_share_value

KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())


def _became_of_records(records: list[tuple[bytes, bytes | None]]) -> dict[str, dict[int, list[list[int]]]]:
    """By group, partition and record: each state and delivery count that was stored, one after the other."""
    found: dict[str, dict[int, list[list[int]]]] = {}
    for key, value in records:
        decoded = decode_share_key(key)
        assert decoded is not None
        kind, share_key = decoded
        if value is None or kind.name != "UPDATE":
            continue
        for batch in decode_share_value(kind, value).batches:
            steps = found.setdefault(f"{share_key.group_id} {share_key.partition}", {})
            for offset in range(batch.first, batch.last + 1):
                steps.setdefault(offset, []).append([batch.state, batch.delivery_count])
    return found


def test_letters_answers_and_states_are_kafkas(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        answers = json.loads(json.dumps(run(broker.bootstrap_servers)))
    assert {step: found for step, found in answers.items() if found != KAFKA.get(step)} == {}
    assert answers.keys() == KAFKA.keys()
    reported, of_kafka = json.loads(json.dumps(letters(tmp_path))), json.loads(LETTERS.read_text())
    assert sum(map(len, reported.values())) > 70
    assert {name: rows for name, rows in reported.items() if rows != of_kafka.get(name)} == {}
    assert reported.keys() == of_kafka.keys()
    kafka = read_records(RECORDS)
    ours = [(key, value) for _, key, value in stored_records(tmp_path, "__share_group_state")]
    assert _became_of_records(ours) == _became_of_records(kafka)
