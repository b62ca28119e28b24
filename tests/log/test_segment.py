"""One segment by itself: reads, truncation, recovery, times and names, in the order of Kafka's LogSegmentTest."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptIndexError
from stratalog.log.append.preparation import BatchFacts
from stratalog.log.format.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from stratalog.log.format.values import BatchPosition, TimestampOffset
from stratalog.log.index.txn_index import AbortedTransaction
from stratalog.log.producers.producer_state import ProducerStateManager
from stratalog.log.recovery.index_ends import check_index_ends
from stratalog.log.recovery.segment_recovery import SoundBatches
from stratalog.log.segment.segment import LogSegment
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.util.filesystem import REAL_FILESYSTEM

BASE = 40

#: Makes a segment with base offset 40 in the test's directory; fields of `LogConfig`.
Make = Callable[..., LogSegment]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[LogSegment] = []

    def make_(
        base_offset: int = BASE, *, suffix: str = "", clock: ManualClock | None = None, **fields: int
    ) -> LogSegment:
        settings = {"index_interval_bytes": 10, "segment_index_bytes": 1000} | fields
        config = LogConfig(**settings)  # type: ignore[arg-type]
        segment = LogSegment(
            tmp_path,
            base_offset,
            config,
            clock=clock or ManualClock(),
            fs=REAL_FILESYSTEM,
            suffix=suffix,
            preallocate=config.preallocate,
        )
        made.append(segment)
        return segment

    yield make_
    for segment in made:
        segment.close()


def batch(offset: int, *values: bytes, timestamps: Sequence[int] = (), **fields: int) -> bytes:
    """A batch whose first record has that offset; timestamps are ten times the offset unless given."""
    times = timestamps or [(offset + i) * 10 for i in range(len(values))]
    records = [Record(offset + i, time, b"k", value) for i, (value, time) in enumerate(zip(values, times, strict=True))]
    return build_batch(records, base_offset=offset, **fields)  # type: ignore[arg-type]


def append(segment: LogSegment, *batches: bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
    """Write whole batches in one append."""
    facts = []
    for data in batches:
        (one,) = iter_batches(data)
        facts.append(BatchFacts(one.base_offset, one.last_offset, one.max_timestamp, one.size, 0))
    segment.append(batches, sum(map(len, batches)), facts, aborted)


def read(segment: LogSegment, offset: int) -> list[RecordBatch]:
    """All batches from the one that holds `offset` on."""
    found = segment.translate_offset(offset)
    if found is None:
        return []
    return list(iter_batches(segment.slice(found.position, segment.size_bytes - found.position).read()))


def values(batches: Sequence[RecordBatch]) -> list[bytes | None]:
    return [None if r.value is None else bytes(r.value) for b in batches for r in b.records()]


def recover(segment: LogSegment, on_batch: Callable[[RecordBatch], None] = lambda _: None) -> SoundBatches:
    """All of it is unflushed, and nothing else is known."""
    return segment.recover(
        on_batch, epoch=None, flushed_to=segment.base_offset, end_offset=1 << 62, before_cut=lambda *_: None
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def test_an_empty_segment_has_nothing_at_any_offset(make: Make) -> None:
    segment = make()
    assert segment.translate_offset(BASE) is None
    assert segment.first_batch_timestamp is None
    assert segment.max_timestamp == TimestampOffset(-1, BASE)


def test_a_read_before_the_first_offset_begins_with_the_first_batch(make: Make) -> None:
    segment = make()
    append(segment, batch(50, b"hello", b"there", b"little", b"bee"))
    assert segment.translate_offset(41) == BatchPosition(50, 0, segment.size_bytes)
    assert values(read(segment, 41)) == [b"hello", b"there", b"little", b"bee"]


def test_a_read_amid_a_batch_begins_with_the_whole_batch(make: Make) -> None:
    segment = make()
    append(segment, batch(50, b"a", b"b"), batch(52, b"c", b"d"))
    assert [b.base_offset for b in read(segment, 53)] == [52]
    assert [b.base_offset for b in read(segment, 51)] == [50, 52]


def test_a_read_behind_the_last_offset_has_nothing(make: Make) -> None:
    segment = make()
    append(segment, batch(50, b"hello", b"there"))
    assert segment.translate_offset(52) is None


def test_a_read_in_a_gap_begins_with_the_next_batch(make: Make) -> None:
    segment = make()
    append(segment, batch(50, b"hello", b"there"))
    append(segment, batch(60, b"alpha", b"beta"))
    assert values(read(segment, 55)) == [b"alpha", b"beta"]


@pytest.mark.parametrize("whole", [True, False])
def test_batches_of_another_file_stand_where_they_stood(make: Make, whole: bool) -> None:
    """Several batches in one append, in one piece or many, are read as they were."""
    segment = make()
    batches = [batch(BASE + 2 * i, b"m%d" % i, b"n%d" % i) for i in range(20)]
    if whole:
        append(segment, *batches)
    else:
        for one in batches:
            append(segment, one)
    assert segment.file.pread(1 << 20, 0) == b"".join(batches)
    assert [b.base_offset for b in read(segment, BASE + 30)] == list(range(BASE + 30, BASE + 40, 2))


@pytest.mark.parametrize("offset", [BASE - 1, BASE + 2**31 - 1, BASE + 2**32])
def test_an_offset_that_the_segment_cannot_hold_is_refused_and_nothing_is_written(make: Make, offset: int) -> None:
    segment = make()
    append(segment, batch(BASE, b"first"))
    size = segment.size_bytes
    with pytest.raises(ValueError, match=f"do not lie between {BASE} and {BASE + 2**31 - 1}"):
        append(segment, batch(offset, b"a", b"b", timestamps=[1, 1]))
    assert (segment.size_bytes, segment.file.size()) == (size, size)
    append(segment, batch(BASE + 2**31 - 2, b"a", b"b", timestamps=[1, 1]))
    assert segment.read_next_offset() == BASE + 2**31


# --- truncation -------------------------------------------------------------------------------------------------------


def test_truncation_takes_one_record_away_as_often_as_it_is_asked(make: Make) -> None:
    segment = make()
    offset = BASE
    for _ in range(30):
        append(segment, batch(offset, b"hello"), batch(offset + 1, b"hello"))
        assert [b.base_offset for b in read(segment, offset)] == [offset, offset + 1]
        segment.truncate_to(offset + 1)
        assert [b.base_offset for b in read(segment, offset)] == [offset]
        offset += 1


def test_truncation_to_a_gap_takes_what_lies_behind_it(make: Make) -> None:
    segment = make()
    append(segment, batch(BASE, b"first"))
    append(segment, batch(BASE + 3, b"behind the gap"))
    assert segment.truncate_to(BASE + 1) > 0
    assert [b.base_offset for b in read(segment, BASE)] == [BASE]


def test_truncation_to_the_beginning_takes_all_and_the_segment_goes_on(make: Make) -> None:
    clock = ManualClock()
    segment = make(clock=clock)
    append(segment, batch(BASE, b"hello", b"there"))
    clock.advance(500)
    assert (segment.size_bytes > 0, segment.first_batch_timestamp) == (True, 410)
    segment.truncate_to(0)
    assert (segment.size_bytes, segment.first_batch_timestamp) == (0, None)
    assert segment.created_ms == clock.now_ms()
    assert not segment.indexes_full
    assert segment.translate_offset(0) is None
    append(segment, batch(BASE, b"hello", b"there"))
    assert values(read(segment, 0)) == [b"hello", b"there"]


def test_truncation_of_an_empty_segment_gives_its_indexes_room_and_its_age_back(make: Make) -> None:
    clock = ManualClock()
    segment = make(clock=clock)
    segment.become_inactive()
    segment.close()
    again = make(clock=clock)
    assert again.offset_index.is_full
    clock.advance(500)
    again.truncate_to(57)
    assert not again.indexes_full
    assert again.created_ms == clock.now_ms()


def test_largest_timestamp_and_next_offset_are_those_of_what_is_left(make: Make) -> None:
    size = len(batch(BASE, b"hello"))
    segment = make(index_interval_bytes=2 * size - 1)
    for offset in range(BASE, BASE + 30):
        append(segment, batch(offset, b"hello"))
    assert segment.read_next_offset() == BASE + 30
    assert segment.time_index.entries == 14
    segment.truncate_to(BASE + 1)
    assert segment.time_index.entries == 0
    assert segment.largest_timestamp() == 10 * BASE
    assert segment.read_next_offset() == BASE + 1


# --- times ------------------------------------------------------------------------------------------------------------


def test_a_timestamp_finds_the_first_record_that_is_not_older(make: Make) -> None:
    segment = make(index_interval_bytes=200)
    for offset in range(BASE, BASE + 50):
        append(segment, batch(offset, b"value"))
    assert segment.largest_timestamp() == 10 * (BASE + 49)
    assert segment.find_timestamp(420, BASE) == TimestampOffset(420, 42)
    assert segment.find_timestamp(421, BASE) == TimestampOffset(430, 43)
    assert segment.find_timestamp(10 * (BASE + 50), BASE) is None
    assert segment.find_timestamp(100, BASE) == TimestampOffset(400, BASE)
    assert segment.find_timestamp(100, BASE + 5) == TimestampOffset(450, BASE + 5)


def test_the_next_offset_follows_the_last_batch(make: Make) -> None:
    segment = make()
    assert segment.read_next_offset() == BASE
    append(segment, batch(50, b"hello", b"there", b"you"))
    assert segment.read_next_offset() == 53


def test_the_first_batch_timestamp_is_kept_over_a_reopening(make: Make) -> None:
    segment = make()
    append(segment, batch(50, b"hello", timestamps=[1000]))
    append(segment, batch(51, b"there", timestamps=[900]))
    assert segment.first_batch_timestamp == 1000
    segment.close()
    assert make().first_batch_timestamp == 1000


def test_a_batch_of_one_append_is_indexed_when_its_interval_is_full(make: Make) -> None:
    """Kafka 4 indexes each batch of an append, not the append as one."""
    segment = make(index_interval_bytes=0)
    batches = [batch(BASE + i, b"v", timestamps=[i + 1]) for i in range(4)]
    append(segment, *batches)
    size = len(batches[0])
    assert list(segment.offset_index) == [(BASE + i, i * size) for i in (1, 2, 3)]
    assert list(segment.time_index) == [(i + 1, BASE + i) for i in (1, 2, 3)]


def test_timestamps_that_go_back_within_an_append_add_no_time_index_entry(make: Make) -> None:
    segment = make(index_interval_bytes=0)
    append(segment, *[batch(BASE + i, b"v", timestamps=[t]) for i, t in enumerate([1, 3, 2, 2])])
    assert segment.offset_index.entries == 3
    assert list(segment.time_index) == [(3, BASE + 1)]
    assert segment.max_timestamp == TimestampOffset(3, BASE + 1)


def test_the_largest_timestamp_may_be_asked_for_by_many_threads_at_once(make: Make) -> None:
    segment = make()
    append(segment, batch(BASE, b"hello", timestamps=[1234]))
    segment.become_inactive()
    segment.close()
    again = make()
    barrier, found = threading.Barrier(8), []

    def ask() -> None:
        barrier.wait()
        found.append(again.max_timestamp)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [TimestampOffset(1234, BASE)] * 8


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [True, False], ids=["indexes open", "indexes not open"])
def test_all_files_change_their_suffix_and_stay_readable(make: Make, tmp_path: Path, is_open: bool) -> None:
    segment = make(index_interval_bytes=0)
    abort = AbortedTransaction(5, BASE, BASE + 1, BASE)
    append(segment, batch(BASE, b"a"), batch(BASE + 1, b"b"), aborted=[abort])
    if not is_open:
        segment.release_indexes()
    segment.change_suffix("", DELETED_SUFFIX)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{BASE:020d}{kind}.deleted" for kind in (".index", ".log", ".timeindex", ".txnindex")
    ]
    assert {path.name for path in (segment.log_path, *segment.index_paths)} == {
        path.name for path in tmp_path.iterdir()
    }
    assert values(read(segment, BASE + 1)) == [b"b"]
    assert segment.txn_index.all == [abort]
    segment.remove_files()
    assert list(tmp_path.iterdir()) == []
    segment.remove_files()


def test_a_segment_is_made_filled_and_swapped_in_under_a_suffix(make: Make, tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=1000, use_large_index_format=True)
    (tmp_path / f"{BASE:020d}.index{CLEANED_SUFFIX}").write_bytes(b"left by a crash")
    segment = LogSegment.create(tmp_path, BASE, config, clock=ManualClock(), fs=REAL_FILESYSTEM, suffix=CLEANED_SUFFIX)
    append(segment, batch(BASE, b"a"), batch(BASE + 1, b"b"))
    segment.become_inactive()
    assert segment.offset_index.entry_size == 12
    assert all(path.name.endswith(CLEANED_SUFFIX) for path in tmp_path.iterdir())
    segment.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
    segment.change_suffix(SWAP_SUFFIX, "")
    segment.close()
    again = make()
    assert again.offset_index.entry_size == 12
    assert values(read(again, BASE + 1)) == [b"b"]


# --- preallocation ----------------------------------------------------------------------------------------------------


def test_a_preallocated_segment_has_its_size_at_once_and_is_cut_when_it_is_sealed(make: Make) -> None:
    segment = make(preallocate=True, segment_bytes=1 << 20)
    append(segment, batch(50, b"hello", b"there"))
    append(segment, batch(60, b"alpha", b"beta"))
    assert values(read(segment, 55)) == [b"alpha", b"beta"]
    size = segment.size_bytes
    assert segment.file.size() == 1 << 20
    segment.become_inactive()
    assert segment.file.size() == size
    segment.close()
    again = make(preallocate=True, segment_bytes=1 << 20)
    assert (again.size_bytes, again.file.size()) == (size, size)
    assert values(read(again, 55)) == [b"alpha", b"beta"]


# --- recovery ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["offset_index_path", "time_index_path"])
def test_a_damaged_index_is_reported_and_made_again(make: Make, which: str) -> None:
    segment = make(0)
    for offset in range(100):
        append(segment, batch(offset, b"%d" % offset))
    segment.become_inactive()
    sound = [path.read_bytes() for path in (segment.offset_index_path, segment.time_index_path)]
    segment.close()
    damaged: Path = getattr(segment, which)
    damaged.write_bytes(random.Random(1).randbytes(240))
    again = make(0)
    with pytest.raises(CorruptIndexError, match=damaged.name):
        check_index_ends(again, REAL_FILESYSTEM)
    assert recover(again).flaw is None
    check_index_ends(again, REAL_FILESYSTEM)
    assert [path.read_bytes() for path in (again.offset_index_path, again.time_index_path)] == sound
    for offset in range(100):
        assert read(again, offset)[0].base_offset == offset
        assert again.find_timestamp(offset * 10, 0) == TimestampOffset(offset * 10, offset)


def test_recovery_ends_before_the_first_batch_that_is_damaged(make: Make) -> None:
    for seed in range(10):
        chance = random.Random(seed)
        segment = make(1000 * seed)
        base = segment.base_offset
        for offset in range(base, base + 100):
            append(segment, batch(offset, b"%d" % offset))
        damaged = chance.randrange(base, base + 100)
        found = segment.translate_offset(damaged)
        assert found is not None
        segment.file.write_at(chance.randbytes(5), found.position + 61)
        assert recover(segment).flaw is not None
        assert segment.size_bytes == segment.file.size() == found.position
        assert segment.read_next_offset() == damaged


def test_recovery_tells_the_first_batch_of_each_epoch(make: Make) -> None:
    segment = make(0)
    for offset, epoch in ((104, 0), (106, 1), (108, 1), (110, 2)):
        append(segment, batch(offset, b"a", b"b", partition_leader_epoch=epoch))
    reported: list[tuple[int, int]] = []
    recover(segment, lambda b: reported.append((b.partition_leader_epoch, b.base_offset)))
    assert reported == [(0, 104), (1, 106), (2, 110)]


@pytest.mark.parametrize("began_before", [False, True])
def test_recovery_makes_the_transaction_index_again_also_of_what_began_before_the_segment(
    make: Make, tmp_path: Path, began_before: bool
) -> None:
    """Two producers' transactions, one aborted; in the second case that one began in an earlier segment."""
    segment = make(100)
    committed: dict[str, Any] = {
        "producer_id": 5,
        "producer_epoch": 0,
        "base_sequence": 0,
        "is_transactional": True,
    }
    aborted = committed | {"producer_id": 10}
    append(segment, batch(100, b"a", b"b", **committed), batch(102, b"a", b"b", **aborted | {"base_sequence": 1}))
    append(segment, batch(104, b"a", b"b"))
    for offset, kind, producer_id in ((106, ControlType.ABORT, 10), (107, ControlType.COMMIT, 5)):
        marker = end_transaction_marker(
            kind,
            base_offset=offset,
            timestamp_ms=1,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        append(segment, marker)
    producers = ProducerStateManager("t-0", tmp_path, clock=ManualClock(), fs=REAL_FILESYSTEM)
    if began_before:
        (first,) = iter_batches(batch(75, b"x", **aborted))
        producers.update(first, "replication")

    def on_batch(one: RecordBatch) -> None:
        if one.has_producer_id and (found := producers.update(one)) is not None:
            segment.txn_index.append(found)

    recover(segment, on_batch)
    assert segment.txn_index.all == [AbortedTransaction(10, 75 if began_before else 102, 106, 100)]


# --- indexes of another kind ------------------------------------------------------------------------------------------


def test_whatever_stands_under_an_index_name_is_reported_at_the_opening(make: Make) -> None:
    """A cheap look finds every file that is not this log's own, and no own one."""
    segment = make(0, index_interval_bytes=100)
    for offset in range(0, 400, 2):
        append(segment, batch(offset, b"%d" % offset, b"x" * (offset % 50)))
    segment.become_inactive()
    segment.close()
    log, index, times = segment.log_path, segment.offset_index_path, segment.time_index_path
    sound = {path: path.read_bytes() for path in (index, times)}
    check_index_ends(make(0), REAL_FILESYSTEM)
    foreign = {
        index: [
            sound[times],
            sound[times][:240],
            log.read_bytes()[:2400],
            b"plain text " * 24,
            b"\xff" * 48,
            sound[index][8:16] * 6,
            sound[index][:-3],
            sound[index] + bytes(240),
            bytes(48),
            b"\0\0\0\1" * 18,
        ],
        times: [
            sound[index],
            sound[index][:240],
            log.read_bytes()[:2400],
            b"plain text " * 24,
            b"\xff" * 48,
            sound[times][:-3],
            sound[times] + bytes(120),
        ],
    }
    for path, contents in foreign.items():
        for content in contents:
            path.write_bytes(content)
            with pytest.raises(CorruptIndexError, match=path.name):
                check_index_ends(make(0), REAL_FILESYSTEM)
        path.write_bytes(sound[path])
    index.unlink()
    with pytest.raises(CorruptIndexError, match="missing"):
        check_index_ends(make(0), REAL_FILESYSTEM)
