"""What cleanings do to transactions: aborted data goes at once, markers when nothing is left that they tell about."""

from __future__ import annotations

from pathlib import Path

from stratalog.log.producers.producer_state import EXPIRATION_MS_DEFAULT
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from tests.log.cleaner.compacted import NOW_MS, RETENTION_MS, Compacted


def large(root: Path, **settings: int) -> Compacted:
    """With room for everything in one segment."""
    return Compacted(root, internal_segment_bytes=100_000, **settings)


def test_aborted_data_goes_and_committed_data_is_deduplicated(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [1, 2])
    log.produce(2, [2, 3])
    log.produce(2, [3, 4])
    log.abort(1)
    log.commit(2)
    aborted = log.aborted()
    log.roll()
    log.clean()
    assert log.keys() == [2, 3, 4]
    assert log.offsets() == [2, 4, 5, 6, 7]
    assert log.aborted() == aborted == [(1, 0, 6)]


def test_transactions_span_segments(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [1])
    log.produce(2, [2])
    log.roll()
    log.produce(1, [3])
    log.produce(2, [4])
    log.roll()
    log.abort(1)
    log.commit(2)
    log.roll()
    log.clean()
    assert log.keys() == [2, 4]
    assert log.aborted() == [(1, 0, 4)]
    log.log.expire_producers(NOW_MS + 2 * EXPIRATION_MS_DEFAULT, EXPIRATION_MS_DEFAULT)
    log.clean(first=0)
    log.clean_twice(first=0)
    assert log.offsets() == [1, 3, 5]
    assert log.aborted() == [], "its marker is gone"


def test_a_transaction_that_is_open_where_the_cleaning_ends_is_not_lost(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [1])
    log.roll()
    log.put(1)
    log.roll()
    end = log.log.active_segment.base_offset
    log.commit(1)
    log.clean(end=end)
    assert log.keys() == [1]
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2]


def test_the_marker_of_an_abort_that_lies_behind_the_map_still_counts(tmp_path: Path) -> None:
    """The map ends within the transaction; the marker is found in the transaction index of a later segment."""
    log = large(tmp_path, slots=3)
    log.put(9)
    log.put(8)
    log.produce(1, [1, 2])
    log.roll()
    log.produce(1, [3])
    log.abort(1)
    log.roll()
    log.put(1, b"kept")
    log.roll()
    while log.dirty < log.log.active_segment.base_offset:
        log.clean()
    assert log.keys() == [9, 8, 1]
    assert log.records()[-1].value == b"kept"


def test_a_commit_marker_goes_one_retention_after_the_last_data(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [1])
    log.commit(1)
    log.put(2)
    log.put(1)
    log.put(2)
    log.produce(1, [5])
    log.commit(1)
    log.roll()
    log.clean()
    assert log.offsets() == [1, 3, 4, 5, 6]
    assert log.batches()[0].delete_horizon_ms is None, "data was met before it in this cleaning"
    log.clean(first=0)
    assert log.batches()[0].delete_horizon_ms == NOW_MS + RETENTION_MS
    log.clock.advance(RETENTION_MS - 1)
    log.clean(first=0)
    assert log.offsets() == [1, 3, 4, 5, 6]
    log.clock.advance(1)
    log.clean(first=0)
    assert log.offsets() == [3, 4, 5, 6]


def test_an_abort_marker_goes_one_retention_after_the_data(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [1])
    log.abort(1)
    log.put(3)
    log.produce(1, [4])
    log.commit(1)
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2, 3, 4]
    assert log.aborted() == [(1, 0, 1)]
    log.clean_twice(first=0)
    assert log.offsets() == [2, 3, 4]
    assert log.aborted() == []


def test_a_batch_of_aborted_data_goes_unread(tmp_path: Path) -> None:
    log = large(tmp_path, io_bytes=100)
    log.produce(1, [1])
    log.abort(1)
    log.produce(1, [2])
    log.produce(1, [2])
    log.commit(1)
    log.roll()
    stats = log.clean().stats
    assert log.offsets() == [1, 3, 4]
    assert (stats.messages_read, stats.messages_written) == (4, 3)
    log.clean_twice(first=0)
    assert log.offsets() == [3, 4]


def test_an_empty_batch_keeps_the_commit_marker_of_its_transaction(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [2, 3])
    log.produce(2, [2, 3])
    log.commit(2)
    log.put(2)
    log.put(3)
    log.commit(1)
    log.roll()
    for _ in range(2):
        log.clean(first=0)
        assert log.offsets() == [4, 5, 6, 7]
        assert log.last_offsets() == [1, 3, 4, 5, 6, 7]
    log.produce(2, [1])
    log.commit(2)
    log.roll()
    log.clean(first=0)
    assert log.last_offsets() == [1, 4, 5, 6, 7, 8, 9], "producer 2 is known by its new batch"
    log.clean_twice(first=0)
    assert log.last_offsets() == [1, 5, 6, 7, 8, 9]


def test_an_empty_batch_keeps_the_abort_marker_of_its_transaction(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [2, 3])
    log.abort(1)
    log.put(2)
    log.roll()
    for _ in range(2):
        log.clean_twice(first=0)
        assert log.offsets() == [2, 3]
        assert log.last_offsets() == [1, 2, 3]
        assert log.aborted() == [(1, 0, 2)]
    log.produce(1, [1])
    log.commit(1)
    log.roll()
    log.clean(first=0)
    assert log.last_offsets() == [2, 3, 4, 5]
    log.clean_twice(first=0)
    assert log.last_offsets() == [3, 4, 5]


def test_the_last_sequence_stays_even_of_an_aborted_transaction(tmp_path: Path) -> None:
    log = large(tmp_path)
    log.produce(1, [1])
    log.produce(1, [2, 3])
    log.abort(1)
    log.put(1)
    log.roll()
    log.clean()
    assert log.offsets() == [3, 4]
    assert log.last_offsets() == [2, 3, 4]
    assert log.batches()[0].last_sequence == 2


def test_sequences_that_begin_again_do_not_keep_old_batches(tmp_path: Path) -> None:
    """The group coordinator writes every batch with sequence 0."""
    log = large(tmp_path)
    for key in (1, 2):
        log.produce(1, [key], sequence=0)
        log.commit(1)
    log.put(1)
    log.put(2)
    log.roll()
    log.clean()
    assert log.offsets() == [1, 3, 4, 5]
    assert log.last_offsets() == [1, 2, 3, 4, 5]
    log.clean_twice(first=0)
    assert log.offsets() == [3, 4, 5]
    assert log.last_offsets() == [2, 3, 4, 5]


def test_the_marker_of_a_producer_without_data_stays_as_an_empty_batch(tmp_path: Path) -> None:
    """It tells the producer's epoch, which keeps older ones out."""
    log = large(tmp_path)
    log.commit(1)
    log.put(2)
    log.put(3)
    log.roll()
    log.clean_twice(first=0)
    assert log.offsets() == [1, 2]
    assert log.last_offsets() == [0, 1, 2]
    assert log.batches()[0].is_control
    log.clean(first=0)
    assert log.last_offsets() == [0, 1, 2], "an empty control batch is cleaned without an error"


def test_markers_and_data_with_the_same_key_do_not_meet(tmp_path: Path) -> None:
    log = large(tmp_path)
    marker_key = b"\x00\x00\x00\x01"
    log.append(build_batch([Record(0, NOW_MS, marker_key, b"data")]))
    log.produce(1, [1])
    log.commit(1)
    log.roll()
    log.clean()
    assert log.offsets() == [0, 1, 2]
    log.append(build_batch([Record(0, NOW_MS, marker_key, b"newer")]))
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2, 3]


def test_tombstones_of_transactions_follow_the_same_horizon(tmp_path: Path) -> None:
    log = large(tmp_path)
    tombstone = [Record(0, NOW_MS, b"1", None)]
    log.append(build_batch(tombstone, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    log.commit(1)
    log.roll()
    log.clean()
    assert log.batches()[0].delete_horizon_ms == NOW_MS + RETENTION_MS
    log.clock.advance(RETENTION_MS)
    log.clean(first=0)
    assert log.offsets() == [1]
    assert log.last_offsets() == [0, 1]
