from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError, RecordListTooLargeError
from stratalog.log.format.file_names import log_file
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.renumbering import renumber
from stratalog.log.segment.segment_writer import SegmentWriter, WrittenSegment
from stratalog.records.batch import iter_batches
from stratalog.records.columns import decode_columns
from stratalog.records.columns_encode import BatchSettings, EncodedBatch, encode_batches
from stratalog.util.clock import SYSTEM_CLOCK
from stratalog.util.filesystem import REAL_FILESYSTEM, File, FileSystem, StrPath

_DAY_MS = 86_400_000


def batches(
    count: int, *, first_offset: int = 0, value_bytes: int = 100, step_ms: int = 1, of: int = 10
) -> list[EncodedBatch]:
    columns = pa.RecordBatch.from_pydict(
        {
            "value": [bytes([n % 250]) * value_bytes for n in range(count)],
            "timestamp": [1_700_000_000_000 + n * step_ms - (n % 3) * 7 for n in range(count)],
        }
    )
    wanted = BatchSettings(batch_records=of, partition_leader_epoch=0)
    return list(encode_batches(columns, first_offset, wanted))


def written(directory: Path, config: LogConfig, of: Sequence[EncodedBatch]) -> Sequence[WrittenSegment]:
    directory.mkdir(exist_ok=True)
    writer = SegmentWriter(directory, config, sync=False)
    for batch in of:
        writer.append(batch)
    return writer.finish()


def logged(directory: Path, config: LogConfig, of: Sequence[EncodedBatch]) -> PartitionLog:
    """What a broker has after the same batches came in, and its last segment is rolled too."""
    log = PartitionLog.open(directory, config, clock=SYSTEM_CLOCK)
    for batch in of:
        log.append_as_follower(bytes(batch.data))
    log.roll()
    log.close()
    return log


@given(
    st.integers(1, 400),
    st.sampled_from([1, 20_000, _DAY_MS // 20]),
    st.sampled_from([0, 1, 4096]),
    st.booleans(),
    st.integers(1, 40),
)
@settings(deadline=None, max_examples=25)
def test_every_file_is_that_of_a_log(
    tmp_path_factory: pytest.TempPathFactory, count: int, step_ms: int, interval: int, large: bool, of: int
) -> None:
    """Whatever the batches, log, indexes and snapshots are byte for byte those of a PartitionLog that took them."""
    base = tmp_path_factory.mktemp("equal")
    config = LogConfig(
        segment_bytes=16_384,
        index_interval_bytes=interval,
        segment_ms=2 * _DAY_MS,
        use_large_index_format=large,
    )
    found = batches(count, step_ms=step_ms, of=of)
    logged(base / "orders-0", config, found)
    segments = written(base / "written", config, found)
    ours = {path.name: path.read_bytes() for segment in segments for path in segment.files}
    end = found[-1].last_offset + 1
    theirs = {
        path.name: path.read_bytes()
        for path in (base / "orders-0").iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
        and (path.suffix == ".snapshot" or not path.name.startswith(f"{end:020d}"))
    }
    assert ours == theirs
    assert sorted(path.name for path in (base / "written").iterdir()) == sorted(ours)


def test_what_is_reported_a_segment_is_what_is_in_it(tmp_path: Path) -> None:
    segments = written(tmp_path / "s", LogConfig(segment_bytes=20_000), batches(500, first_offset=1000))
    assert [s.base_offset for s in segments] == [1000, *(s.last_offset + 1 for s in segments[:-1])]
    for segment in segments:
        decoded = decode_columns(segment.log.read_bytes())
        offsets, times = (decoded.column(name).to_pylist() for name in ("offset", "timestamp"))
        assert (segment.base_offset, segment.last_offset) == (offsets[0], offsets[-1])
        assert (segment.records, segment.max_timestamp_ms) == (len(offsets), max(times))
        assert segment.size == segment.log.stat().st_size


def test_segments_are_taken_as_they_are_ended(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, LogConfig(segment_bytes=20_000))
    taken: list[WrittenSegment] = []
    for batch in batches(500):
        writer.append(batch)
        taken += writer.taken()
    assert len(taken) > 1
    rest = writer.finish()
    assert len(rest) == 1
    assert sum(s.records for s in [*taken, *rest]) == 500


def test_files_are_synced_on_another_thread_while_more_is_written(tmp_path: Path) -> None:
    class Noting(File):
        def sync(self) -> None:
            synced.append((self.path.name, threading.current_thread().name))
            super().sync()

    class NotingFileSystem(FileSystem):
        def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
            opened = super().open(path, write=write, create=create)
            return Noting(path, os.dup(opened.fileno()))

    synced: list[tuple[str, str]] = []
    with ThreadPoolExecutor(2, thread_name_prefix="disk") as syncing:
        writer = SegmentWriter(tmp_path, LogConfig(segment_bytes=20_000), fs=NotingFileSystem(), syncing=syncing)
        for batch in batches(500):
            writer.append(batch)
        files = {path.name for segment in writer.finish() for path in segment.files}
    assert {name for name, _ in synced} == files == {path.name for path in tmp_path.iterdir()}
    assert all(thread.startswith("disk") for _, thread in synced)


def test_a_disk_that_fails_behind_the_back_is_reported_at_the_end(tmp_path: Path) -> None:
    class Failing(File):
        def sync(self) -> None:
            raise OSError("no space left")

    class FailingFileSystem(FileSystem):
        def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
            opened = super().open(path, write=write, create=create)
            return Failing(path, os.dup(opened.fileno()))

    with ThreadPoolExecutor(2) as syncing:
        writer = SegmentWriter(tmp_path, LogConfig(segment_bytes=20_000), fs=FailingFileSystem(), syncing=syncing)
        for batch in batches(500):
            writer.append(batch)
        with pytest.raises(OSError, match="no space left"):
            writer.finish()
        writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_an_abort_leaves_no_file(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, LogConfig(segment_bytes=20_000))
    for batch in batches(500):
        writer.append(batch)
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_log_goes_on_where_written_segments_end(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    written(directory, LogConfig(segment_bytes=20_000), batches(500))
    log = PartitionLog.open(directory, LogConfig(segment_bytes=20_000), clock=SYSTEM_CLOCK)
    assert (log.log_start_offset, log.log_end_offset) == (0, 500)
    info = log.append_as_leader(bytes(batches(3)[0].data), leader_epoch=0)
    assert info.first_offset == 500
    log.close()


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, LogConfig(segment_bytes=1024))
    with pytest.raises(RecordListTooLargeError, match="segments have at most 1024"):
        writer.append(batches(1, value_bytes=2000)[0])


def test_offsets_must_ascend(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, LogConfig())
    writer.append(batches(10)[0])
    with pytest.raises(ValueError, match="is not after 9"):
        writer.append(batches(10, first_offset=9)[0])
    writer.abort()


def test_a_moved_segment_is_one_that_was_written_there(tmp_path: Path) -> None:
    """Renumbering gives the bytes that were written had the offsets been known; indexes are the same anyway."""
    there = written(tmp_path / "there", LogConfig(), batches(500, first_offset=7_000_000_000))
    here = written(tmp_path / "here", LogConfig(), batches(500))
    with REAL_FILESYSTEM.open(here[0].log, write=True) as file:
        renumber(file, 7_000_000_000, 0)
    assert here[0].log.read_bytes() == there[0].log.read_bytes()
    assert here[0].offset_index.read_bytes() == there[0].offset_index.read_bytes()
    assert here[0].time_index.read_bytes() == there[0].time_index.read_bytes()


def test_renumbering_sets_the_leader_epoch_and_keeps_the_crc(tmp_path: Path) -> None:
    (segment,) = written(tmp_path / "s", LogConfig(), batches(50))
    with REAL_FILESYSTEM.open(segment.log, write=True) as file:
        renumber(file, 5, 17)
    for batch in iter_batches(segment.log.read_bytes()):
        batch.ensure_valid()
        assert batch.partition_leader_epoch == 17


@pytest.mark.parametrize("cut", [3, 30, 100])
def test_what_is_no_log_is_not_renumbered(tmp_path: Path, cut: int) -> None:
    path = tmp_path / log_file(0)
    path.write_bytes(bytes(batches(10)[0].data)[:-cut] if cut > 50 else bytes(cut))
    with (
        REAL_FILESYSTEM.open(path, write=True) as file,
        pytest.raises(CorruptRecordError, match="position 0"),
    ):
        renumber(file, 1, 0)
