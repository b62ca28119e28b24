"""What a data directory says of tiered partitions, read from its files alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.inspect.data_dirs import METADATA_TOPIC, DataDirSet
from stratalog.inspect.facts import LogFacts, PartitionMetadata
from stratalog.log.format.checkpoints import LOG_START_OFFSETS, OffsetCheckpoint
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import RemoteLogMetadata, RemotePartitionDeleteMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState, RemotePartitionDeleteState
from stratalog.remote.metadata.serde import encode
from stratalog.util.uuids import random_uuid
from tests.remote.values import PARTITION, segment, segment_id, update

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState


def write_metadata(
    data_dir: Path,
    events: Sequence[RemoteLogMetadata | bytes],
    number: int = 0,
    *,
    segment_bytes: int = 1 << 20,
) -> None:
    """A partition of the metadata topic with these events, one a batch, as the broker writes them."""
    with closing(
        PartitionLog.open(data_dir / f"{METADATA_TOPIC}-{number}", LogConfig(segment_bytes=segment_bytes))
    ) as log:
        for event in events:
            value = event if isinstance(event, bytes) else encode(event)
            record = Record(offset=0, timestamp_ms=1, key=None, value=value)
            log.append_as_leader(build_batch([record]), leader_epoch=0, origin="internal")


def replayed(data_dir: Path) -> PartitionMetadata:
    (found,) = [facts for mentioned in DataDirSet([data_dir]).replay() for facts in mentioned.values()]
    return found


def test_events_make_states(tmp_path: Path) -> None:
    events: list[RemoteLogMetadata] = [segment(n, n * 10, n * 10 + 9) for n in range(4)]
    events += [
        update(0, FINISHED),
        update(1, FINISHED),
        update(1, DELETING),
        update(2, DELETING),
        update(2, DELETED),
    ]
    write_metadata(tmp_path, events)
    found = replayed(tmp_path)
    states = {known.segment_id: known.state for known in found.segments.values()}
    assert states == {segment_id(0): FINISHED, segment_id(1): DELETING, segment_id(3): STARTED}
    assert found.deleted == {segment_id(2).id}
    assert found.is_complete


def test_events_that_the_states_do_not_allow_change_nothing(tmp_path: Path) -> None:
    lost = update(5, FINISHED)
    write_metadata(tmp_path, [lost, segment(0, 0, 9), update(0, DELETED), update(0, FINISHED), segment(0, 5, 9)])
    (known,) = replayed(tmp_path).segments.values()
    assert (known.state, known.start_offset) == (FINISHED, 0)


def test_a_deleted_partition_has_deleted_segments(tmp_path: Path) -> None:
    deletes = [RemotePartitionDeleteMetadata(PARTITION, state, 5, 1) for state in RemotePartitionDeleteState]
    write_metadata(tmp_path, [segment(0, 0, 9), update(0, FINISHED), *deletes])
    found = replayed(tmp_path)
    assert (dict(found.segments), found.deleted) == ({}, {segment_id(0).id})
    assert found.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


def test_all_segments_of_the_topic_are_read_in_order(tmp_path: Path) -> None:
    events: list[RemoteLogMetadata] = []
    for n in range(60):
        events += [segment(n, n * 10, n * 10 + 9), update(n, FINISHED)]
    write_metadata(tmp_path, events, segment_bytes=1_000)
    assert len(list((tmp_path / f"{METADATA_TOPIC}-0").glob("*.log"))) > 5
    found = replayed(tmp_path)
    assert [known.state for known in found.segments.values()] == [FINISHED] * 60


def test_a_log_whose_beginning_has_gone_is_not_complete(tmp_path: Path) -> None:
    write_metadata(tmp_path, [segment(n, n * 10, n * 10 + 9) for n in range(60)], segment_bytes=1_000)
    first = min((tmp_path / f"{METADATA_TOPIC}-0").glob("*.log"))
    first.unlink()
    assert not replayed(tmp_path).is_complete


@pytest.mark.parametrize("what", ["garbage event", "flipped batch", "no batch"])
def test_damage_makes_it_incomplete_and_the_rest_is_read(tmp_path: Path, what: str) -> None:
    events: list[RemoteLogMetadata | bytes] = [segment(0, 0, 9), segment(1, 10, 19), segment(2, 20, 29)]
    if what == "garbage event":
        events[1] = b"\xff" * 20
    write_metadata(tmp_path, events)
    (log,) = (tmp_path / f"{METADATA_TOPIC}-0").glob("*.log")
    data = bytearray(log.read_bytes())
    if what == "flipped batch":
        data[len(data) // 2] ^= 1
    elif what == "no batch":
        data[len(data) * 2 // 3 + 16] = 9  # a magic that no batch has
    log.write_bytes(data)
    found = replayed(tmp_path)
    assert not found.is_complete
    assert segment_id(0).id in found.segments


def test_a_batch_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    write_metadata(tmp_path, [segment(0, 0, 9), segment(1, 10, 19)])
    (log,) = (tmp_path / f"{METADATA_TOPIC}-0").glob("*.log")
    log.write_bytes(log.read_bytes()[:-5])
    found = replayed(tmp_path)
    assert (list(found.segments), found.is_complete) == ([segment_id(0).id], True)


def test_metadata_partitions_that_are_missing_are_noticed(tmp_path: Path) -> None:
    write_metadata(tmp_path, [], 0)
    assert DataDirSet([tmp_path]).metadata_is_complete
    write_metadata(tmp_path, [], 2)
    assert not DataDirSet([tmp_path]).metadata_is_complete
    assert DataDirSet([tmp_path]).has_metadata
    (tmp_path / "empty").mkdir()
    assert not DataDirSet([tmp_path / "empty"]).has_metadata


def test_a_partition_directory_tells_offsets_and_lineage(tmp_path: Path) -> None:
    partition = replace(PARTITION, topic="t", partition=0)
    record = Record(offset=0, timestamp_ms=1, key=None, value=b"x" * 300)
    with closing(
        PartitionLog.open(tmp_path / "t-0", LogConfig(segment_bytes=1_000), topic_id=partition.topic_id)
    ) as log:
        for epoch in (0, 0, 2, 2, 3):
            log.leader_epochs.assign(epoch, log.log_end_offset)
            log.append_as_leader(build_batch([record, replace(record, offset=1)]), leader_epoch=epoch)
    assert DataDirSet([tmp_path]).log_facts(partition) == LogFacts(None, 0, 10, {0: 0, 2: 4, 3: 8})
    OffsetCheckpoint(tmp_path / LOG_START_OFFSETS).write({("t", 0): 5})
    assert DataDirSet([tmp_path]).log_facts(partition) == LogFacts(5, 5, 10, {0: 0, 2: 4, 3: 8})
    assert DataDirSet([tmp_path]).log_facts(replace(partition, topic_id=random_uuid())) is None
    assert DataDirSet([tmp_path]).log_facts(replace(partition, partition=1)) is None
