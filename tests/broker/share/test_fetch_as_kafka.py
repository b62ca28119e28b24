"""Members of share groups get the answers that Apache Kafka 4.4.0 gives them, and the same is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.broker.share.fetch_cases import CONFIG, FetchTalk, of, run
from tests.golden.share_fetch.make import ANSWERS, RECORDS
from tests.support.consumer_offsets import stored_records
from tests.support.goldens import read_records
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.broker.share import decode_share_key, decode_share_value, log_records

#: Steps that are answered in another way, and why.
EXPLAINED = {
    "start: and on": "Kafka hands out records below the log start that lie in the batch that it begins in, as long as "
    "a member has older ones",
}
#: How many changes come before locks end: those Kafka keeps one by one, when it gets to each.
_UNTIL_LOCKS_END = {"locks 0": 2}
KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())


def _stored(records: list[tuple[bytes, bytes | None]]) -> dict[str, list[Any]]:
    """What became of records, by group, without the snapshots that a coordinator makes when it likes."""
    found: dict[str, list[Any]] = {}
    for key, value in records:
        decoded = decode_share_key(key)
        assert decoded is not None
        kind, share_key = decoded
        if value is not None and kind.name == "UPDATE":
            said = decode_share_value(kind, value)
            found.setdefault(f"{share_key.group_id} {share_key.partition}", []).append(
                [said.start_offset, said.done_count, [list(vars_of(batch)) for batch in said.batches]]
            )
    return found


def vars_of(batch: Any) -> tuple[int, int, int, int]:
    return batch.first, batch.last, batch.state, batch.delivery_count


@pytest.mark.parametrize("slice_bytes_min", [1, 1 << 30])
def test_answers_and_records_are_kafkas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes_min: int) -> None:
    monkeypatch.setattr(log_records, "SLICE_BYTES_MIN", slice_bytes_min)  # all from files, or none
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        answers = json.loads(json.dumps(run(broker.bootstrap_servers)))
    assert answers.keys() == KAFKA.keys()
    different = {step: (found, KAFKA[step]) for step, found in answers.items() if found != KAFKA[step]}
    assert different.keys() == EXPLAINED.keys(), different
    kafka = read_records(RECORDS)
    ours = [(key, value) for _, key, value in stored_records(tmp_path, "__share_group_state")]
    _compare(_stored(ours), _stored(kafka))


def _compare(ours: dict[str, list[Any]], kafka: dict[str, list[Any]]) -> None:
    """Both store the same, as far as both go: who is slower has more locks that are over before its end."""
    assert len(ours) > 14
    for group, stored in ours.items():
        both = min(len(stored), len(kafka[group]), _UNTIL_LOCKS_END.get(group, len(stored)))
        assert both > 0
        assert stored[:both] == kafka[group][:both], group
    assert sum(map(len, ours.values())) > 30


def test_after_a_restart_what_was_said_is_known_and_what_was_not_comes_again(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = FetchTalk(wire)
        talk.topic("t", 10, 10, group="g")
        talk.fetch("all", "g", "a", 0, "t")
        talk.acknowledge("some", "g", "a", 1, of("t", (0, 4, [1]), (8, 9, [1]), (12, 12, [2])))
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = FetchTalk(wire)
        got = talk.fetch("again", "g", "b", 0, "t").responses[0].partitions[0].acquired_records
    assert [(row.first_offset, row.last_offset, row.delivery_count) for row in got] == [(5, 7, 2), (10, 19, 2)]
