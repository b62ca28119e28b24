"""More segments than may be open: they are parked, and nothing that uses them notices."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment import open_segments, segment as segment_module
from stratalog.log.segment.open_segments import OpenSegments
from stratalog.util import File
from tests.log.writers import append, replicate

LIMIT = 3


class Segment:
    """What is parked, and how often."""

    def __init__(self) -> None:
        self.is_used = False
        self.parked = 0

    def park(self) -> None:
        self.parked += 1


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> OpenSegments:
    """Three segments may be open, of those that are opened from now on."""
    registry = OpenSegments(lambda: LIMIT)
    monkeypatch.setattr(segment_module, "OPEN_SEGMENTS", registry)
    return registry


@pytest.fixture
def logs(tmp_path: Path, registry: OpenSegments) -> Iterator[list[PartitionLog]]:
    """Ten of them, each with one batch."""
    config = LogConfig(index_interval_bytes=0)
    logs = [PartitionLog.open(tmp_path / f"orders-{number}", config) for number in range(10)]
    for log in logs:
        append(log)
        replicate(log)
    yield logs
    for log in logs:
        log.close()


def open_files(directory: Path) -> list[str]:
    """The `.log` files in a directory that the process has open, deleted ones too."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(str(directory)) and ".log" in target:
            found.append(target)
    return found


def records(log: PartitionLog, offset: int = 0) -> bytes:
    found = log.read(offset, 1 << 20).slice
    assert found is not None
    return found.read()


def test_the_one_that_was_not_used_for_longest_is_parked() -> None:
    registry = OpenSegments(lambda: LIMIT)
    _, second, third, fourth = segments = [Segment() for _ in range(4)]
    for each in segments[:LIMIT]:
        registry.admit(each)
    second.is_used = third.is_used = False
    registry.admit(fourth)
    assert [each.parked for each in segments] == [0, 1, 0, 0]
    registry.forget(third)
    registry.admit(second)
    assert [each.parked for each in segments] == [0, 1, 0, 0]
    assert len(registry) == LIMIT


def test_all_in_use_still_leaves_place_for_another() -> None:
    registry = OpenSegments(lambda: LIMIT)
    segments = [Segment() for _ in range(LIMIT)]
    for each in segments:
        registry.admit(each)
        each.is_used = True
    last = Segment()
    registry.admit(last)
    assert [each.parked for each in segments] == [1, 0, 0]
    assert not last.parked


def test_want_of_descriptors_parks_and_tries_again_until_none_is_left() -> None:
    registry = OpenSegments(lambda: None)
    segments = [Segment() for _ in range(100)]
    for each in segments:
        registry.admit(each)

    def opening(parked: int) -> File:
        if sum(each.parked for each in segments) < parked:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return File("it", -1)

    assert registry.open(lambda: opening(1)).closed
    assert 0 < sum(each.parked for each in segments) < 100
    assert registry.open(lambda: opening(100)).closed
    with pytest.raises(OSError, match="Too many open files"):
        registry.open(lambda: opening(101))


def test_half_of_the_descriptors_are_for_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_segments, "descriptors_max", lambda: 1000)
    assert open_segments._open_at_most() == 500
    monkeypatch.setattr(open_segments, "descriptors_max", lambda: None)
    assert open_segments._open_at_most() is None


def test_ten_logs_are_written_and_read_with_three_open(tmp_path: Path, logs: list[PartitionLog]) -> None:
    for _ in range(3):
        for log in logs:
            append(log)
            replicate(log)
            assert len(open_files(tmp_path)) <= LIMIT
    assert len({records(log) for log in logs}) == 1
    for log in logs:
        log.roll()
        append(log)
        log.flush()
        log.truncate_to(2)
        assert log.log_end_offset == 2
        assert len(open_files(tmp_path)) <= LIMIT + 1  # one is not forgotten yet
    assert not any(log.failure for log in logs)


def test_what_was_read_stays_readable_when_it_is_parked_and_deleted(logs: list[PartitionLog]) -> None:
    first = logs[0]
    held = first.read(0, 1 << 20).slice
    assert held is not None
    whole = held.read()
    for log in logs[1:]:
        append(log)
    first.roll()
    append(first)
    replicate(first)
    first.increment_log_start_offset(1, "a test")
    first.delete_old_segments()
    assert len(first.segments) == 1
    assert held.read() == whole


def test_a_parked_segment_that_is_deleted_is_readable_for_who_holds_it(logs: list[PartitionLog]) -> None:
    first = logs[0]
    segment = first.segments[0]
    whole = records(first)
    first.roll()
    append(first)
    replicate(first)
    for log in logs[1:]:
        append(log)
    first.increment_log_start_offset(1, "a test")
    first.delete_old_segments()
    segment.log_path.unlink()
    for log in logs[1:]:
        append(log)
    assert segment.file.pread(segment.size_bytes, 0) == whole


def test_a_renamed_directory_is_readable_for_who_holds_its_log(tmp_path: Path, logs: list[PartitionLog]) -> None:
    first, whole = logs[0], records(logs[0])
    first.keep_open()
    (tmp_path / "orders-0").rename(tmp_path / "orders-0.gone")
    for log in logs[1:]:
        append(log)
    assert records(first) == whole
    (tmp_path / "orders-0.gone").rename(tmp_path / "orders-0")


def test_a_closed_segment_is_not_opened_again(logs: list[PartitionLog]) -> None:
    segment = logs[0].segments[0]
    logs[0].close()
    segment.park()
    assert segment.file.closed


def test_threads_read_while_others_have_their_logs_parked(registry: OpenSegments, logs: list[PartitionLog]) -> None:
    whole, wrong, stop = records(logs[0]), list[object](), threading.Event()

    def read() -> None:
        while not stop.is_set():
            for log in logs:
                try:
                    if not records(log).startswith(whole):
                        wrong.append(log)
                except Exception as error:
                    wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        for log in logs:
            append(log)
            replicate(log)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [log.log_end_offset for log in logs] == [51] * 10
