from __future__ import annotations

import logging
import struct

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptRecordError, CorruptSnapshotError
from stratalog.remote.api.interfaces import RemoteLogMetadata, RemotePartitionDeleteMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState, RemotePartitionDeleteState
from stratalog.remote.metadata.log import EventsRead
from stratalog.remote.metadata.replayed import ReplayedPartition
from stratalog.remote.metadata.serde import encode
from stratalog.remote.metadata.snapshot import decode_snapshot
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.util.checksum import crc32c
from tests.remote.values import PARTITION, segment, update
from tests.remote.world import MemoryMetadataLog

_EPOCHS = range(3)
_OFFSETS = range(30)


def _events() -> st.SearchStrategy[RemoteLogMetadata]:
    numbers, starts = st.integers(0, 6), st.integers(0, 20)
    added = st.builds(
        lambda number, start, length, epoch, cut: segment(
            number,
            start,
            start + length,
            {epoch: start} if cut is None or cut > length else {epoch: start, epoch + 1: start + cut},
        ),
        numbers,
        starts,
        st.integers(0, 9),
        st.integers(0, 1),
        st.none() | st.integers(1, 9),
    )
    changed = st.builds(update, numbers, st.sampled_from(list(RemoteLogSegmentState)[1:]))
    deletion = st.builds(
        lambda state: RemotePartitionDeleteMetadata(PARTITION, state, 1, 1),
        st.sampled_from(RemotePartitionDeleteState),
    )
    return st.one_of(added, changed, changed, changed, deletion)


def _known(manager: TopicBasedRemoteLogMetadataManager) -> object:
    """Everything that a manager answers of the partition."""
    lookups = [
        (
            manager.remote_log_segment_metadata(PARTITION, epoch, offset),
            manager.next_segment_with_txn_index(PARTITION, epoch, offset),
        )
        for epoch in _EPOCHS
        for offset in _OFFSETS
    ]
    of_epochs = [
        (manager.highest_offset_for_epoch(PARTITION, epoch), manager.remote_log_size(PARTITION, epoch))
        for epoch in _EPOCHS
    ]
    by_id = sorted(manager.list_remote_log_segments(PARTITION), key=lambda m: m.segment_id.id.int)
    return lookups, of_epochs, by_id, manager.unfinished_partition_deletes()


@settings(deadline=None, max_examples=300)
@given(events=st.lists(_events(), max_size=40), moments=st.lists(st.integers(0, 40), max_size=3))
def test_a_snapshot_and_the_events_after_it_say_what_all_events_say(
    events: list[RemoteLogMetadata], moments: list[int]
) -> None:
    """Whenever snapshots are written, a start that uses the last one knows what a start without any knows."""
    log = MemoryMetadataLog(partition_count=1)
    for at, event in enumerate(events):
        if at in moments:
            replayed = ReplayedPartition(log, 0)  # of a process that began with the snapshot before
            replayed.catch_up()
            replayed.write_snapshot()
        log.values[0].append(encode(event))
    with_snapshot = _known(TopicBasedRemoteLogMetadataManager(log))
    log.snapshots.clear()
    assert with_snapshot == _known(TopicBasedRemoteLogMetadataManager(log))


def _log_with_snapshot() -> MemoryMetadataLog:
    log = MemoryMetadataLog(partition_count=1)
    manager = TopicBasedRemoteLogMetadataManager(log)
    for number in range(5):
        manager.add_remote_log_segment_metadata(segment(number, number * 10, number * 10 + 9)).result()
        manager.update_remote_log_segment_metadata(update(number, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)).result()
    manager.close()
    return log


class CountingLog(MemoryMetadataLog):
    """Counts the events that are read."""

    def __init__(self, log: MemoryMetadataLog) -> None:
        super().__init__(log.partition_count)
        self.values, self.snapshots = log.values, log.snapshots
        self.events_read = 0

    def read(self, partition: int, offset: int, max_bytes: int):  # type: ignore[no-untyped-def]
        found = super().read(partition, offset, max_bytes)
        self.events_read += len(found.events)
        return found


def _events_read(log: MemoryMetadataLog) -> int:
    counting = CountingLog(log)
    manager = TopicBasedRemoteLogMetadataManager(counting)
    assert [m.start_offset for m in manager.list_remote_log_segments(PARTITION) if m.is_readable] == [
        0,
        10,
        20,
        30,
        40,
    ][: len(log.values[0]) // 2]
    return counting.events_read


def test_after_a_clean_end_nothing_but_the_last_event_is_read() -> None:
    assert _events_read(_log_with_snapshot()) == 1


def test_what_came_after_the_snapshot_is_replayed() -> None:
    log = _log_with_snapshot()
    late: list[RemoteLogMetadata] = [
        segment(9, 50, 59),
        update(9, RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
    ]
    log.values[0] += [encode(event) for event in late]
    manager = TopicBasedRemoteLogMetadataManager(log)
    assert manager.highest_offset_for_epoch(PARTITION, 0) == 59


def _damage_of_every_kind(data: bytes) -> dict[str, bytes]:
    head, body = data[:16], bytearray(data[16:])

    def with_body(changed: bytes, version: int = 1) -> bytes:
        return struct.pack(">8siI", b"strataRM", version, crc32c(changed)) + changed

    return {
        "are not a snapshot": data[:30],
        "begins with": b"somebody" + data[8:],
        "has version 2": with_body(bytes(body), version=2),
        "stored CRC-32C": head + bytes(body[:-1]) + b"\xff",
        "computed": data[:-5],
        "its checksum is valid, but its content is not": with_body(bytes(body[:-5])),
        "bytes too many": with_body(bytes(body) + b"\0"),
    }


@pytest.mark.parametrize("said", list(_damage_of_every_kind(bytes(60))))
def test_a_snapshot_that_cannot_be_read_costs_a_replay_and_one_line(
    said: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = _log_with_snapshot()
    log.snapshots[0] = _damage_of_every_kind(log.snapshots[0])[said]
    with caplog.at_level(logging.WARNING):
        assert _events_read(log) == 10
    (line,) = caplog.messages
    assert "all its events are replayed" in line
    assert said in line


@pytest.mark.parametrize("bit", range(0, 8 * 44, 13))
def test_no_bit_of_the_head_can_be_flipped_unseen(bit: int) -> None:
    data = bytearray(_log_with_snapshot().snapshots[0])
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(data))


def test_a_log_that_was_cut_below_the_snapshot_is_replayed(caplog: pytest.LogCaptureFixture) -> None:
    log = _log_with_snapshot()
    del log.values[0][8:]
    assert _events_read(log) == 8
    assert "it goes up to offset 10, the log ends at 8" in caplog.text


def test_a_log_that_was_cut_and_written_again_is_replayed(caplog: pytest.LogCaptureFixture) -> None:
    log = _log_with_snapshot()
    log.values[0][8:] = [encode(event) for event in (segment(7, 90, 99), segment(8, 40, 49))]
    manager = TopicBasedRemoteLogMetadataManager(log)
    assert manager.highest_offset_for_epoch(PARTITION, 0) == 39
    assert "event 9 of the log differs" in caplog.text


class DamagedLog(CountingLog):
    """The event at one offset cannot be read: it is left out, or nothing behind it can be found."""

    def __init__(self, log: MemoryMetadataLog, damaged: int, *, raises: bool) -> None:
        super().__init__(log)
        self.damaged, self.raises = damaged, raises

    def read(self, partition: int, offset: int, max_bytes: int):  # type: ignore[no-untyped-def]
        if offset == self.damaged:
            if self.raises:
                raise CorruptRecordError("there is no batch")
            return EventsRead([], offset + 1)
        return super().read(partition, offset, max_bytes)


@pytest.mark.parametrize("raises", [False, True])
def test_a_snapshot_whose_last_event_is_damaged_in_the_log_is_used(raises: bool) -> None:
    """It is sound itself, and nothing else has that event any more."""
    log = DamagedLog(_log_with_snapshot(), 9, raises=raises)
    manager = TopicBasedRemoteLogMetadataManager(log)
    assert manager.highest_offset_for_epoch(PARTITION, 0) == 49
    assert log.events_read == 0


def test_a_log_whose_beginning_expired_is_replayed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _log_with_snapshot()
    monkeypatch.setattr(log, "start_offset", lambda _: 2)
    TopicBasedRemoteLogMetadataManager(log).list_remote_log_segments(PARTITION)
    assert "it begins at offset 0, the log at 2" in caplog.text


def test_snapshots_are_written_as_events_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.remote.metadata.replayed.SNAPSHOT_EVERY_EVENTS", 4)
    log = MemoryMetadataLog(partition_count=1)
    manager = TopicBasedRemoteLogMetadataManager(log)
    written = []
    for number in range(6):
        manager.add_remote_log_segment_metadata(segment(number, number * 10, number * 10 + 9)).result()
        written.append(0 if not log.snapshots else decode_snapshot(log.snapshots[0]).covers.next_offset)
    assert written == [0, 0, 0, 4, 4, 4]


def test_a_disk_that_takes_no_snapshot_costs_a_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryMetadataLog(partition_count=1)

    def refuse(partition: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log, "write_snapshot", refuse)
    manager = TopicBasedRemoteLogMetadataManager(log)
    manager.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    manager.close()
    assert "Cannot write a snapshot of metadata partition 0" in caplog.text
