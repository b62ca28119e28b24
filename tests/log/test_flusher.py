"""A flush waits for the disk without the log's lock: concurrent changes of the log are no failure of the disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError
from stratalog.log.flusher import Flusher
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.segment import LogSegment
from stratalog.testing.failing_filesystem import FailingFileSystem
from tests.log.writers import append, batch

THREE_SEGMENTS = LogConfig(segment_bytes=3 * len(batch()), file_delete_delay_ms=0, retention_bytes=0)

Concurrently = Callable[[Callable[[], object]], None]


@pytest.fixture
def concurrently(monkeypatch: pytest.MonkeyPatch) -> Concurrently:
    """Do something when the first segment is about to be synced."""
    pending: list[Callable[[], object]] = []
    flush = LogSegment.flush

    def interrupted(segment: LogSegment) -> None:
        if pending:
            pending.pop()()
        flush(segment)

    monkeypatch.setattr(LogSegment, "flush", interrupted)
    return pending.append


def written(directory: Path, failures: list[KafkaStorageError]) -> PartitionLog:
    log = PartitionLog.open(directory / "foo-0", THREE_SEGMENTS)
    log.on_storage_error = failures.append
    append(log, times=9)
    log.update_high_watermark(9)
    assert len(log.segments) == 3
    return log


@pytest.mark.parametrize("end", ["close", "delete", "abandon"])
def test_a_log_that_is_closed_during_a_flush_is_no_failure_of_the_disk(
    tmp_path: Path, concurrently: Concurrently, end: str
) -> None:
    failures: list[KafkaStorageError] = []
    log = written(tmp_path, failures)
    concurrently(
        {
            "close": lambda: log.close(flush=False),
            "delete": log.delete,
            "abandon": lambda: log.abandon(KafkaStorageError("the directory has failed")),
        }[end]
    )
    with pytest.raises(KafkaStorageError, match=r"closed|has failed"):
        log.flush()
    assert not failures
    assert log.recovery_point == 0
    assert not log.flush_if_due(0)


def test_segments_that_are_deleted_during_a_flush_are_passed_over(tmp_path: Path, concurrently: Concurrently) -> None:
    failures: list[KafkaStorageError] = []
    log = written(tmp_path, failures)

    def retention() -> None:
        assert len(log.delete_old_segments()) == 3
        log.purge_deleted(2**60)

    concurrently(retention)
    log.flush()
    assert not failures
    assert (log.log_start_offset, log.recovery_point) == (9, 9)
    log.close()


def test_what_was_appended_in_place_of_what_a_truncation_cut_is_not_taken_for_flushed(
    tmp_path: Path, concurrently: Concurrently, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path, [])
    last = log.active_segment

    def cut_and_append() -> None:
        log.truncate_to(7)
        append(log, times=2)

    synced: list[int] = []
    flush = LogSegment.flush

    def watched(segment: LogSegment) -> None:
        flush(segment)
        if segment is last:
            synced.append(segment.size_bytes)
            if len(synced) == 1:
                cut_and_append()

    monkeypatch.setattr(LogSegment, "flush", watched)
    log.flush()
    assert synced == [last.size_bytes] * 2, "synced again, with what was appended behind the first time"
    assert log.recovery_point == 9
    log.close()


def test_a_snapshot_that_a_roll_takes_during_a_flush_waits_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands for the very offset that the flush goes up to."""
    log = written(tmp_path, [])
    sync_names = Flusher._sync_names

    def rolled(flusher: Flusher) -> None:
        monkeypatch.undo()
        sync_names(flusher)
        log.roll()

    monkeypatch.setattr(Flusher, "_sync_names", rolled)
    log.flush()
    assert log.recovery_point == 9
    assert [snapshot.offset for snapshot in log.producers.snapshots.unsynced(9)] == [9]
    append(log)
    log.flush()
    assert not log.producers.snapshots.unsynced(10)
    log.close()


def test_a_sync_that_fails_is_reported_and_ends_all_appends(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    failures: list[KafkaStorageError] = []
    log = PartitionLog.open(tmp_path / "foo-0", THREE_SEGMENTS, fs=fs)
    log.on_storage_error = failures.append
    append(log)
    fs.fail(tmp_path, errno.EIO, {"sync"})
    with pytest.raises(KafkaStorageError, match="flush failed"):
        log.flush()
    assert len(failures) == 1
    fs.mend(tmp_path)
    with pytest.raises(KafkaStorageError, match="earlier sync failed"):
        append(log)
    with pytest.raises(KafkaStorageError, match="earlier sync failed"):
        log.flush()
    assert log.recovery_point == 0
