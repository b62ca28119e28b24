"""Readers and flushes that meet the renaming and the removal of a segment: they find their answer, and no disk
failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError, OffsetOutOfRangeError
from stratalog.log import reading
from stratalog.log.format.values import Isolation, LogOffset, OffsetPosition
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.log.index.time_index import TimeIndex
from stratalog.log.local_log import LocalLog
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.segment import LogSegment
from stratalog.util.filesystem import File, FileSystem, StrPath
from tests.log.writers import NOW_MS, append, batch

CONFIG = LogConfig(segment_bytes=3 * len(batch()), index_interval_bytes=0, retention_bytes=0, file_delete_delay_ms=0)


class Interrupted(FileSystem):
    """Something that another thread does right before a file is opened, as far as nothing keeps it from that."""

    def __init__(self) -> None:
        self.concurrently: Callable[[], object] | None = None
        self.threads: list[threading.Thread] = []

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        if self.concurrently is not None:
            thread = threading.Thread(target=self.concurrently)
            self.concurrently = None
            self.threads.append(thread)
            thread.start()
            thread.join(0.2)
        return super().open(path, write=write, create=create)


@pytest.mark.parametrize(
    "use",
    [
        lambda index: index.lookup(2),
        lambda index: index.entry(0),
        lambda index: index.check_ends(),
        lambda index: index.flush(),
        lambda index: index.trim_to_valid_size(),
    ],
    ids=["lookup", "entry", "check", "flush", "trim"],
)
def test_an_index_that_is_renamed_as_it_is_opened_is_found(
    tmp_path: Path, use: Callable[[OffsetIndex], object]
) -> None:
    fs = Interrupted()
    with OffsetIndex(tmp_path / "i.index", 0, max_size=800) as index:
        for n in range(1, 5):
            index.append(n, 10 * n)
    index = OffsetIndex(tmp_path / "i.index", 0, max_size=800, fs=fs)
    index.resize(800)
    index.append(5, 50)
    fs.concurrently = lambda: index.rename_to(tmp_path / "i.index.swap")
    use(index)
    for thread in fs.threads:
        thread.join()
    assert index.lookup(3) == OffsetPosition(3, 30)
    index.close()
    assert [path.name for path in tmp_path.iterdir()] == ["i.index.swap"]


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartitionLog:
    """A log whose segments are deleted, and their files removed, when the first reader has found the one it needs."""
    PartitionLog.open(tmp_path / "foo-0", CONFIG).close()
    log = PartitionLog.open(tmp_path / "foo-0", CONFIG, clean_shutdown=True)
    append(log, times=9)
    log.update_high_watermark(9)
    log.close()
    log = PartitionLog.open(tmp_path / "foo-0", CONFIG, clean_shutdown=True)
    log.update_high_watermark(9)

    def remove() -> None:
        monkeypatch.undo()
        log.delete_old_segments()
        log.purge_deleted(2**60)

    translate_offset, find_timestamp = LogSegment.translate_offset, LogSegment.find_timestamp

    def late_translate(segment: LogSegment, offset: int) -> object:
        remove()
        return translate_offset(segment, offset)

    def late_find(segment: LogSegment, timestamp_ms: int, start_offset: int) -> object:
        remove()
        return find_timestamp(segment, timestamp_ms, start_offset)

    monkeypatch.setattr(LogSegment, "translate_offset", late_translate)
    monkeypatch.setattr(LogSegment, "find_timestamp", late_find)
    return log


class WatchedRenames(FileSystem):
    """Something is done before and behind each renaming of a file, and what raises then is kept."""

    def __init__(self) -> None:
        self.watch: Callable[[str], object] | None = None
        self.failures: list[BaseException] = []
        self.renames = 0

    def rename(self, source: StrPath, target: StrPath) -> None:
        watch, self.watch = self.watch, None
        self._tell(watch, str(target))
        super().rename(source, target)
        self._tell(watch, str(target))
        self.renames += watch is not None
        self.watch = watch

    def _tell(self, watch: Callable[[str], object] | None, target: str) -> None:
        try:
            if watch is not None:
                watch(target)
        except BaseException as error:
            self.failures.append(error)


def cut_fully(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(20)


def roll_what_is_empty(log: PartitionLog) -> None:
    log.roll()
    log.roll()


CHANGES: dict[str, Callable[[PartitionLog], object]] = {
    "truncate": lambda log: log.truncate_to(2),
    "truncate fully": cut_fully,
    "delete": lambda log: log.delete_old_segments(),
    "roll what is empty": roll_what_is_empty,
}


def written(directory: Path, fs: FileSystem) -> PartitionLog:
    log = PartitionLog.open(directory / "foo-0", CONFIG, fs=fs)
    append(log, times=9)
    log.update_high_watermark(9)
    assert len(log.segments) == 3
    return log


@pytest.mark.parametrize("name", CHANGES)
def test_a_segment_leaves_the_row_before_its_files_are_renamed(tmp_path: Path, name: str) -> None:
    """But for an active one in whose place another of its name is put."""
    fs = WatchedRenames()
    log = written(tmp_path, fs)

    def look(target: str) -> None:
        if target.endswith(".log.deleted"):
            base_offset = int(Path(target).name[:20])
            row = [segment.base_offset for segment in log.segments]
            assert base_offset not in row or row == [base_offset] or base_offset == 9, (target, row)

    fs.watch = look
    CHANGES[name](log)
    assert not fs.failures
    assert fs.renames
    log.close()


@pytest.mark.parametrize("name", CHANGES)
def test_readers_find_an_answer_at_every_step_of_a_change(tmp_path: Path, name: str) -> None:
    """Another thread reads and searches before and behind each renaming; it may wait for the end of the change."""
    fs = WatchedRenames()
    log = written(tmp_path, fs)
    reported: list[KafkaStorageError] = []
    log.on_storage_error = reported.append
    threads: list[threading.Thread] = []

    def use() -> None:
        for offset in range(10):
            try:
                log.read(offset, 1000)
            except OffsetOutOfRangeError:
                continue
            except BaseException as error:
                fs.failures.append(error)
        try:
            log.offset_for_timestamp(NOW_MS)
            log.max_timestamp()
        except BaseException as error:
            fs.failures.append(error)

    def beside(_: str) -> None:
        thread = threading.Thread(target=use)
        threads.append(thread)
        thread.start()
        thread.join(0.2)  # as far as it does not wait for what is done here

    for segment in log.segments[:-1]:
        segment.release_indexes()
    fs.watch = beside
    CHANGES[name](log)
    fs.watch = None
    for thread in threads:
        thread.join()
    assert not fs.failures
    assert not reported
    log.close()


def test_a_reader_that_saw_the_end_before_a_truncation_and_the_row_after_it_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path, FileSystem())
    limit = reading._limit

    def late(local: LocalLog, isolation: Isolation) -> LogOffset:
        found = limit(local, isolation)
        monkeypatch.undo()
        log.truncate_to(2)
        return found

    monkeypatch.setattr(reading, "_limit", late)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(5, 1000)
    log.close()


def names(log: PartitionLog) -> list[str]:
    return sorted(path.name for path in log.directory.iterdir() if path.suffix == ".deleted")


def test_a_read_of_a_segment_that_is_removed_looks_again(gone: PartitionLog) -> None:
    reported: list[KafkaStorageError] = []
    gone.on_storage_error = reported.append
    with pytest.raises(OffsetOutOfRangeError):
        gone.read(0, 1000)
    assert not reported
    assert names(gone) == []
    gone.close()


def test_a_search_in_a_segment_that_is_removed_looks_again(gone: PartitionLog) -> None:
    reported: list[KafkaStorageError] = []
    gone.on_storage_error = reported.append
    assert gone.offset_for_timestamp(NOW_MS) is None
    assert not reported
    assert names(gone) == []
    gone.close()


def test_an_index_of_a_closed_log_is_neither_opened_nor_made(tmp_path: Path) -> None:
    """Its directory may be another topic's by then."""
    log = PartitionLog.open(tmp_path / "foo-0", CONFIG)
    append(log, times=9)
    segment = log.segments[0]
    segment.release_indexes()
    log.close()
    for path in tmp_path.rglob("*index"):
        path.unlink()
    for use in (lambda: segment.offset_index, lambda: segment.time_index):
        with pytest.raises(KafkaStorageError, match="closed"):
            use()
    assert list(tmp_path.rglob("*index")) == []


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_an_index_whose_file_is_gone_is_refused_and_is_not_made(
    tmp_path: Path, kind: type[OffsetIndex] | type[TimeIndex]
) -> None:
    path = tmp_path / "i"
    path.write_bytes(bytes(range(24)))
    index = kind(path, 0, max_size=240)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        index.entry(1)
    assert not path.exists()
