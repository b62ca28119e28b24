"""States of share groups get the answers and the records that Apache Kafka 4.4.0 gives them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.share.state_cases import CONFIG, TOPIC, StateTalk, run
from tests.golden.share_states.make import ANSWERS, RECORDS
from tests.support.consumer_offsets import stored_records
from tests.support.goldens import as_json, read_records
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.broker.share import (
    ShareKey,
    ShareSnapshot,
    ShareUpdate,
    decode_share_key,
    decode_share_value,
    encode_share_state,
    states,
)
from stratalog.broker.share.state_changes import combined
from stratalog.broker.share.state_records import StateBatch
from stratalog.errors import CorruptRecordError
from stratalog.wire.api_keys import ApiKey

OURS = {**CONFIG, "share.coordinator.state.topic.num.partitions": "1"}
Records = list[tuple[bytes, bytes | None]]

KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())
STORED: Records = read_records(RECORDS)


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
    with Broker(data_dir=tmp_path, config=OURS) as broker:
        answers = as_json(run(broker.bootstrap_servers))
    assert {step: found for step, found in answers.items() if not step.startswith(("find", "summary"))} == {
        step: found for step, found in KAFKA.items() if not step.startswith(("find", "summary"))
    }
    stored = [(key, value) for _, key, value in stored_records(tmp_path, "__share_group_state")]
    assert _plain(stored) == _plain(STORED)
    with Broker(data_dir=tmp_path, config=OURS) as broker, Wire(broker.bootstrap_servers) as wire:
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


def test_what_is_not_needed_goes_and_what_is_left_is_the_same_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_OLD_MS", 0)
    with Broker(data_dir=tmp_path, config=OURS) as broker, Wire(broker.bootstrap_servers) as wire:
        run(broker.bootstrap_servers)
        before = StateTalk(wire)
        before.read("the first partition", 0)
        before.read("the second partition", 1)
        partition = broker.services.partition("__share_group_state", 0)
        assert partition is not None
        end = partition.log.log_end_offset
        _tidy(broker)
        assert partition.log.log_start_offset == end  # all three snapshots were written once more
        assert partition.log.log_end_offset == end + 3
        _tidy(broker)
        assert partition.log.log_end_offset == end + 3
    with Broker(data_dir=tmp_path, config=OURS) as broker, Wire(broker.bootstrap_servers) as wire:
        again = StateTalk(wire)
        again.read("the first partition", 0)
        again.read("the second partition", 1)
        assert again.answers == before.answers
        wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": TOPIC, "topic_id": None}], timeout=10_000)
        _tidy(broker)
    left = [_decoded((key, value))[1] for _, key, value in stored_records(tmp_path, "__share_group_state")]
    assert left[-3:] == [None] * 3


def test_very_many_batches_that_overlap_are_joined_in_time() -> None:
    """Each of 20,000 lies in the one before it: a row on each side is left of all but the last."""
    count = 20_000
    rows = combined((), [StateBatch(at, 2 * count - at, at % 2 * 2, at + 1) for at in range(count)], 0)
    assert len(rows) == 2 * count - 1
    assert rows[count - 1] == StateBatch(count - 1, count + 1, (count - 1) % 2 * 2, count)


def _tidy(broker: Broker) -> None:
    services = broker.services
    asyncio.run_coroutine_threadsafe(services.share_states.tidy(), services.loop).result(30)
