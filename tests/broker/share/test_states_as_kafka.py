"""States of share groups get the answers and the records that Apache Kafka 4.4.0 gives them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.share.state_cases import CONFIG, StateTalk, run
from tests.golden.share_states.make import ANSWERS, RECORDS
from tests.support.consumer_offsets import stored_records
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.broker.share import (
    ShareKey,
    ShareSnapshot,
    ShareUpdate,
    decode_share_key,
    decode_share_value,
    encode_share_state,
)
from stratalog.errors import CorruptRecordError

Records = list[tuple[bytes, bytes | None]]

KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())
STORED: Records = [
    (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    for key, value in json.loads(RECORDS.read_text())
]


def _decoded(record: tuple[bytes, bytes | None]) -> tuple[ShareKey, ShareSnapshot | ShareUpdate | None]:
    found = decode_share_key(record[0])
    assert found is not None
    return found[1], None if record[1] is None else decode_share_value(found[0], record[1])


def _plain(records: Records) -> dict[Any, list[Any]]:
    """By key, without times and the id of the topic, which differ from run to run."""
    plain: dict[Any, list[Any]] = {}
    for record in records:
        key, value = _decoded(record)
        if isinstance(value, ShareSnapshot):
            assert value.created_ms > 0
            assert value.written_ms == value.created_ms
            value = replace(value, created_ms=0, written_ms=0)
        plain.setdefault((key.group_id, key.partition), []).append(value)
    return plain


def test_answers_and_records_are_kafkas_also_after_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        answers = json.loads(json.dumps(run(broker.bootstrap_servers)))
    assert {step: found for step, found in answers.items() if not step.startswith(("find", "summary"))} == {
        step: found for step, found in KAFKA.items() if not step.startswith(("find", "summary"))
    }
    stored = [(key, value) for _, key, value in stored_records(tmp_path, "__share_group_state")]
    assert _plain(stored) == _plain(STORED)
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = StateTalk(wire)
        talk.read("life: read begun", 0)
        talk.read("seed: read 39", 1)
        talk.summary("seed: summary 39", 1)
        talk.write("wrong: an earlier leader writes", 2, 0, leader=4, epoch=2)
        talk.write("wrong: an earlier state", 2, 0, leader=5, epoch=1)
        again = json.loads(json.dumps(talk.answers))
    assert again == {step: KAFKA[step] for step in again}


def test_kafkas_records_are_read_and_written_back_byte_for_byte() -> None:
    kinds = set()
    for record in STORED:
        key, value = _decoded(record)
        kinds.add(type(value))
        assert encode_share_state(key, value) == record
    assert kinds == {ShareSnapshot, ShareUpdate, type(None)}


def test_damaged_records_are_refused() -> None:
    key, value = next(record for record in STORED if record[1])
    found = decode_share_key(key)
    assert found is not None
    assert value is not None
    for size in range(len(key)):
        with pytest.raises(CorruptRecordError):
            decode_share_key(key[:size])
    for size in range(len(value)):
        with pytest.raises(CorruptRecordError):
            decode_share_value(found[0], value[:size])
    assert decode_share_key(b"\0\x02" + key[2:]) is None
