"""KIP-1333, "Test Plan", as far as indexes and segments go: a class for each line of the plan, named as it names
them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.append.roll import RollReason, roll_reason
from stratalog.log.format.file_names import log_file, offset_index_file
from stratalog.log.format.offset_index_detection import detect_in_file
from stratalog.log.format.offset_index_format import LARGE, LEGACY, Evidence, OffsetIndexFormat
from stratalog.log.format.values import Isolation, OffsetPosition
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.segment import LogSegment
from stratalog.testing.clock import ManualClock
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.log.log_model import batch_of, read_records
from tests.log.sparse_log import append_giants

GIB = 1 << 30
INT_MAX = 2**31 - 1
BASE = 100

formats = pytest.mark.parametrize("form", [LEGACY, LARGE], ids=["legacy", "large"])


def entries_of(count: int) -> list[OffsetPosition]:
    return [OffsetPosition(BASE + 10 * i, 4100 * i) for i in range(1, count + 1)]


def encode(entries: list[OffsetPosition], form: OffsetIndexFormat) -> bytes:
    return b"".join(form.entry.pack(entry.offset - BASE, entry.position) for entry in entries)


def detected(path: Path, expected: OffsetIndexFormat) -> OffsetIndexFormat:
    return detect_in_file(path, BASE, fs=REAL_FILESYSTEM, expected=expected).format


class TestOffsetIndexDualFormat:
    """Both 8-byte legacy and 12-byte large entry formats can be written and read correctly."""

    @formats
    def test_what_is_written_is_read(self, tmp_path: Path, form: OffsetIndexFormat) -> None:
        path = tmp_path / "i.index"
        entries = entries_of(50)
        with OffsetIndex(path, BASE, max_size=1200, entry_size=form.entry_size) as index:
            for entry in entries:
                index.append(*entry)
            assert [index.lookup(entry.offset + 3) for entry in entries] == entries
        assert path.read_bytes() == encode(entries, form)
        with OffsetIndex(path, BASE, max_size=1200, entry_size=form.entry_size) as index:
            assert list(index) == entries

    def test_large_positions_are_written_in_the_large_format_only(self, tmp_path: Path) -> None:
        with OffsetIndex(tmp_path / "l.index", BASE, max_size=120, entry_size=12) as index:
            index.append(BASE + 1, INT_MAX + 1)
            assert index.lookup(BASE + 1).position == INT_MAX + 1
        with (
            OffsetIndex(tmp_path / "s.index", BASE, max_size=120, entry_size=8) as index,
            pytest.raises(ValueError, match="Finalize MetadataVersion to IBP_4_4_IV1 to enable large index format"),
        ):
            index.append(BASE + 1, INT_MAX + 1)

    @pytest.mark.parametrize("use_large", [False, True], ids=["legacy", "large"])
    def test_a_new_index_has_the_format_of_the_level_in_force(self, tmp_path: Path, use_large: bool) -> None:
        config = LogConfig(use_large_index_format=use_large)
        segment = LogSegment.create(tmp_path, BASE, config, clock=ManualClock(), fs=REAL_FILESYSTEM)
        assert segment.offset_index.format is (LARGE if use_large else LEGACY)
        segment.close()


class TestFormatAutoDetection:
    """Unambiguous file sizes, ambiguous file sizes, and edge cases (empty files, non-existent files)."""

    @formats
    @pytest.mark.parametrize("expected", [LEGACY, LARGE], ids=["expecting legacy", "expecting large"])
    @pytest.mark.parametrize("count", [1, 5, 7, 25, 35])
    def test_a_size_that_one_format_divides(
        self, tmp_path: Path, form: OffsetIndexFormat, expected: OffsetIndexFormat, count: int
    ) -> None:
        path = tmp_path / offset_index_file(BASE)
        path.write_bytes(encode(entries_of(count), form))
        other = LARGE if form is LEGACY else LEGACY
        assert path.stat().st_size % other.entry_size
        assert detected(path, expected) is form

    @formats
    @pytest.mark.parametrize("expected", [LEGACY, LARGE], ids=["expecting legacy", "expecting large"])
    @pytest.mark.parametrize("size", [24, 48, 72, 240, 2400])
    def test_a_size_that_both_formats_divide(
        self, tmp_path: Path, form: OffsetIndexFormat, expected: OffsetIndexFormat, size: int
    ) -> None:
        """72 bytes from 9 entries are the document's own example of what size cannot show."""
        path = tmp_path / offset_index_file(BASE)
        path.write_bytes(encode(entries_of(size // form.entry_size), form))
        assert path.stat().st_size == size
        assert detected(path, expected) is form

    @pytest.mark.parametrize("expected", [LEGACY, LARGE], ids=["legacy", "large"])
    def test_an_empty_or_missing_file_has_the_requested_format(
        self, tmp_path: Path, expected: OffsetIndexFormat
    ) -> None:
        path = tmp_path / offset_index_file(BASE)
        assert detected(path, expected) is expected
        path.write_bytes(b"")
        assert detected(path, expected) is expected

    def test_a_size_that_neither_divides_is_corrupt_and_rebuilt(self, tmp_path: Path) -> None:
        log = log_with(tmp_path, 20, use_large=False)
        log.close()
        path = tmp_path / "t-0" / offset_index_file(0)
        sound = path.read_bytes()
        path.write_bytes(sound[:-3])
        assert detect_in_file(path, 0, fs=REAL_FILESYSTEM).evidence is Evidence.NONE
        log_with(tmp_path, 0, use_large=False).close()
        assert path.read_bytes() == sound


class TestUpgradeAndDowngrade:
    """Legacy indexes are read by new code, whatever it would write.

    What new code writes in legacy mode old code reads.
    """

    @pytest.mark.parametrize("batches", [2, 4, 7, 10, 13, 25])
    def test_a_legacy_index_is_read_after_the_upgrade(self, tmp_path: Path, batches: int) -> None:
        log_with(tmp_path, batches, use_large=False).close()
        log = log_with(tmp_path, 0, use_large=True)
        assert log.active_segment.offset_index.format is LEGACY
        assert log.active_segment.offset_index.entries == batches - 1
        assert [record.offset for record in read_records(log, 0)] == list(range(batches))
        log.close()

    def test_a_legacy_index_stays_legacy_while_it_is_filled(self, tmp_path: Path) -> None:
        log_with(tmp_path, 5, use_large=False).close()
        log = log_with(tmp_path, 5, use_large=True)
        assert log.active_segment.offset_index.format is LEGACY
        assert log.active_segment.offset_index.entries == 8
        log.close()

    def test_an_index_that_is_rebuilt_after_the_upgrade_is_large(self, tmp_path: Path) -> None:
        log_with(tmp_path, 10, use_large=False).close()
        log = log_with(tmp_path, 0, use_large=True, clean=False)
        assert log.active_segment.offset_index.format is LARGE
        assert log.active_segment.offset_index.entries == 9
        assert [record.offset for record in read_records(log, 0)] == list(range(10))
        log.close()

    def test_an_index_that_is_rebuilt_before_the_upgrade_stays_legacy(self, tmp_path: Path) -> None:
        log_with(tmp_path, 10, use_large=False).close()
        path = tmp_path / "t-0" / offset_index_file(0)
        sound = path.read_bytes()
        path.unlink()
        log_with(tmp_path, 0, use_large=False).close()
        assert path.read_bytes() == sound

    def test_what_is_written_in_legacy_mode_is_the_old_codes_layout(self, tmp_path: Path) -> None:
        """Eight bytes an entry, two signed big-endian ints: what a broker before KIP-1333 maps and bisects."""
        log = log_with(tmp_path, 10, use_large=False)
        expected = list(log.active_segment.offset_index)
        log.close()
        data = (tmp_path / "t-0" / offset_index_file(0)).read_bytes()
        assert [OffsetPosition(*pair) for pair in struct.iter_unpack(">ii", data)] == expected

    def test_a_segment_rolled_after_the_upgrade_is_large_beside_legacy_ones(self, tmp_path: Path) -> None:
        log_with(tmp_path, 5, use_large=False).close()
        log = log_with(tmp_path, 0, use_large=True)
        log.roll()
        append(log, 5)
        assert [segment.offset_index.format for segment in log.segments] == [LEGACY, LARGE]
        assert [record.offset for record in read_records(log, 0)] == list(range(10))
        log.close()


class TestFileRecordsSizes:
    """Sizes are accurate past 2^31-1, and truncation handles amounts past it; the files are sparse."""

    @pytest.mark.parametrize("size", [INT_MAX, INT_MAX + 1, 2**32, 2**32 + 1, 5 * GIB + 3])
    def test_the_size_of_a_segment_is_that_of_its_file(self, tmp_path: Path, size: int) -> None:
        sparse(tmp_path / log_file(0), size)
        segment = open_segment(tmp_path)
        assert segment.size_bytes == size
        segment.close()

    @pytest.mark.parametrize("giants", [2, 3])
    def test_a_truncation_takes_more_than_2_gib_at_once(self, tmp_path: Path, giants: int) -> None:
        log = log_with(tmp_path, 3, use_large=True)
        kept = log.active_segment.size_bytes
        append_giants(log, *[2 * GIB - 1] * giants)
        append(log, 2)
        size = log.active_segment.size_bytes
        assert size > giants * (2 * GIB - 1)
        log.truncate_to(3)
        assert (log.active_segment.size_bytes, log.log_end_offset) == (kept, 3)
        assert log.active_segment.offset_index.entries == 2
        assert append(log, 1) == 3
        log.close()


class TestLogSegment:
    """Roll above 2 GiB, consistent sizes, and a recovery that preserves all records."""

    @pytest.mark.parametrize("limit", [INT_MAX, 2**31, 2**32, 8 * GIB, 2**63 - 1])
    def test_should_roll_with_segment_bytes_above_2_gib(self, limit: int) -> None:
        def reason(size: int) -> RollReason | None:
            return roll_reason(
                size=size,
                incoming_size=100,
                segment_bytes_max=limit,
                waited_ms=0,
                segment_ms_max=1,
                indexes_full=False,
                base_offset=0,
                incoming_last_offset=5,
            )

        assert reason(limit - 100) is None
        assert reason(limit - 99) is RollReason.SIZE

    def test_a_segment_rolls_before_its_relative_offset_overflows_however_small_it_is(self) -> None:
        for last_offset, expected in (
            (BASE + INT_MAX, None),
            (BASE + INT_MAX + 1, RollReason.OFFSET_OVERFLOW),
        ):
            found = roll_reason(
                size=0,
                incoming_size=100,
                segment_bytes_max=8 * GIB,
                waited_ms=0,
                segment_ms_max=1,
                indexes_full=False,
                base_offset=BASE,
                incoming_last_offset=last_offset,
            )
            assert found is expected

    @formats
    def test_recovery_preserves_all_records(self, tmp_path: Path, form: OffsetIndexFormat) -> None:
        use_large = form is LARGE
        log = log_with(tmp_path, 30, use_large=use_large)
        before = read_records(log, 0)
        size = log.active_segment.size_bytes
        log.close()
        (tmp_path / "t-0" / offset_index_file(0)).unlink()
        again = log_with(tmp_path, 0, use_large=use_large, clean=False)
        assert read_records(again, 0) == before
        assert (again.active_segment.size_bytes, again.active_segment.offset_index.format) == (size, form)
        assert again.active_segment.offset_index.entries == 29
        again.close()


def log_with(directory: Path, batches: int, *, use_large: bool, clean: bool = True) -> PartitionLog:
    """The partition `t-0`, opened, with so many batches more; every batch has its index entry."""
    config = LogConfig(
        segment_bytes=8 * GIB if use_large else GIB,
        index_interval_bytes=0,
        segment_index_bytes=2_400,
        use_large_index_format=use_large,
    )
    log = PartitionLog.open(directory / "t-0", config, clock=ManualClock(), clean_shutdown=clean)
    append(log, batches)
    return log


def append(log: PartitionLog, batches: int) -> int:
    """Append so many batches of one record; the offset of the first."""
    first = log.log_end_offset
    for i in range(batches):
        log.append_as_leader(batch_of([b"v%d" % i], [1]), leader_epoch=0)
    assert log.read(first, 1, isolation=Isolation.LOG_END).start.offset == first
    return first


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def open_segment(directory: Path) -> LogSegment:
    return LogSegment(directory, 0, LogConfig(), clock=ManualClock(), fs=REAL_FILESYSTEM)
