"""The steps by themselves, where a whole compaction would not tell what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError, RemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.byte_sources import ByteSources
from stratalog.inspect.place import Place, PlaceTier
from stratalog.jobs.compaction import bucket, keys, local, sources
from stratalog.jobs.compaction.bucket import bucket_plan
from stratalog.jobs.compaction.bucket_job import BucketJob
from stratalog.jobs.compaction.keys import KeyCollector, Packed
from stratalog.jobs.compaction.newest import NewestKeys
from stratalog.jobs.compaction.plan import buckets_of, met_before, records_a_byte
from stratalog.jobs.compaction.tiered import InBucket
from stratalog.jobs.compaction.values import KeysTask, SegmentSummary, SourceSegment
from stratalog.log.cleaner.superseded import SupersededOffsets
from stratalog.log.cleaner.transactions import MetData
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.testing.clock import ManualClock
from tests.jobs.compaction.in_process import compact_in_process
from tests.jobs.compaction.lives import (
    T0,
    bucket_batches,
    cleanable_end,
    lived,
    partition_at,
    upload,
    write_log,
)

JOB = UUID(int=5 << 64)


@given(
    entries=st.lists(st.lists(st.integers(1, 40), max_size=60), min_size=1, max_size=6),
    dirty=st.integers(0, 400),
    many=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_a_record_is_superseded_if_a_later_dirty_one_has_its_key(
    entries: list[list[int]], dirty: int, many: bool
) -> None:
    """Segments of 100 offsets from the newest to the oldest, in a table that has to grow if there are `many` keys."""
    seen = NewestKeys()
    if many:
        more = np.arange(20_000, dtype=np.int64) + 1_000
        packed = np.stack([more, more], axis=1).tobytes() + np.zeros(20_000, np.uint32).tobytes()
        assert len(seen.superseded(packed, 10**6, 0)) == 0
    newer: set[int] = set()
    for number in reversed(range(len(entries))):
        base, hashes = number * 100, np.array(entries[number], np.int64)
        offsets = np.arange(len(hashes), dtype=np.uint32)
        data = np.stack([hashes, -hashes], axis=1).tobytes() + offsets.tobytes()
        expected = []
        for at in reversed(range(len(hashes))):
            if int(hashes[at]) in newer:
                expected.append(at)
            if base + at >= dirty:
                newer.add(int(hashes[at]))
        assert seen.superseded(data, base, dirty).tolist() == expected[::-1]
    seen.clear()
    assert len(seen.superseded(np.zeros((0, 2), np.int64).tobytes(), 0, 0)) == 0
    with pytest.raises(ValueError, match="not a multiple of the entry size"):
        seen.superseded(b"123", 0, 0)


@given(listed=st.sets(st.integers(0, 300)), asked=st.lists(st.integers(0, 300), max_size=50))
@settings(deadline=None, max_examples=60)
def test_superseded_offsets_are_found_in_any_order(listed: set[int], asked: list[int]) -> None:
    newer = SupersededOffsets(1_000, np.array(sorted(listed), np.uint32), 5_000)
    for offset in asked:
        assert newer.is_superseded(b"", 1_000 + offset) == (offset in listed)
    assert newer.latest_offset == 5_000


def test_entries_leave_in_pieces_when_there_is_no_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when one batch has more records than there is room for; buckets hold all entries between them."""
    batches = [
        build_batch([Record(first + n, 0, b"%d" % n, b"v") for n in range(count)], base_offset=first)
        for first, count in ((0, 30), (30, 70), (100, 5))
    ]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    source = SourceSegment(0, 105, path.stat().st_size, Place(PlaceTier.LOCAL, str(path)), str(path), 0)
    task = KeysTask(0, 0, source, ByteSources(), [], 7, 3)
    whole = list(KeyCollector().collect(task))
    for name in ("_ENTRIES_MIN", "_ENTRIES_MAX", "_ENTRIES_A_BUCKET"):
        monkeypatch.setattr(keys, name, 10)
    pieces = list(KeyCollector().collect(task))
    assert len(pieces) > len(whole)
    for found in (whole, pieces):
        offsets: list[int] = []
        for each in found:
            if isinstance(each, Packed):
                count = len(each.data) // 20
                assert each.bucket in (7, 8, 9)
                offsets += np.frombuffer(each.data, np.uint32, count, count * 16).tolist()
        assert sorted(offsets) == list(range(105))
        (summary,) = (each for each in found if isinstance(each, SegmentSummary))
        assert (summary.records, summary.keys, summary.batches) == (105, 105, 3)
    path.write_bytes(path.read_bytes()[:-1])
    cut = replace(source, size=source.size - 1)
    with pytest.raises(CorruptRecordError, match=r"0\.log: position"):
        list(KeyCollector().collect(replace(task, source=cut)))


def test_what_was_met_of_transactions_goes_from_segment_to_segment() -> None:
    summaries = [
        SegmentSummary(0, 0, met=MetData(frozenset({1}), frozenset({2}))),
        SegmentSummary(0, 1, commits=frozenset({2}), met=MetData(frozenset(), frozenset({3}))),
        SegmentSummary(0, 2, aborts=frozenset({1})),
        SegmentSummary(0, 3),
    ]
    assert met_before(summaries) == [
        MetData(),
        MetData(frozenset({1}), frozenset({2})),
        MetData(frozenset({1}), frozenset({3})),
        MetData(frozenset(), frozenset({3})),
    ]


def test_buckets_hold_a_million_keys_and_every_core_gets_one() -> None:
    assert [buckets_of(count, 8) for count in (0, 50_000, 400_000, 5_000_000, 50_000_000)] == [1, 1, 4, 8, 50]


def test_the_number_of_records_is_estimated_from_headers() -> None:
    batch = build_batch([Record(n, 0, None, b"x" * 100) for n in range(10)])
    assert records_a_byte(batch * 3) == pytest.approx(10 / len(batch))
    assert records_a_byte(b"") == records_a_byte(b"?" * 100) > 0


class TestBuckets:
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        directory, self.config, self.now_ms = lived(
            45, tmp_path / "life", codecs=False, old_formats=False, large_index=False, steps=40
        )
        store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
        with local.opened(partition_at(directory), self.config, ManualClock(self.now_ms)) as log:
            log.truncate_to(cleanable_end(log))
            log.update_high_watermark(log.log_end_offset)
            log.roll()
            upload(log, store)
        return store

    def test_a_history_that_was_given_up_is_left_alone(self, store: ObjectStore) -> None:
        own = list_remote_segments(store, covered=True)
        assert [list(each.leader_epochs) for each in (own[0], own[-1])] == [[0], [1]]
        other = replace(own[0], segment_id=uuid4(), leader_epochs={1: 0}, end_offset=own[1].end_offset)
        plan = bucket_plan(
            ByteSources(store.url), [other, *own], self.config, first_dirty_offset=0, now_ms=self.now_ms, job=JOB
        )
        assert list(plan.manifests) == own
        assert plan.covered == ()

    def test_segments_that_overlap_in_part_are_refused(self, store: ObjectStore) -> None:
        first, second, *rest = list_remote_segments(store, covered=True)
        with pytest.raises(RemoteStorageError, match="overlap in part"):
            bucket_plan(
                ByteSources(store.url),
                [replace(first, end_offset=second.base_offset), second, *rest],
                self.config,
                first_dirty_offset=0,
                now_ms=self.now_ms,
                job=JOB,
            )


def test_a_remote_segment_of_which_nothing_stays_keeps_a_header(tmp_path: Path) -> None:
    write_log(tmp_path / "prices-0", records=600, keys=1)
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    config = LogConfig.from_properties({"internal.segment.bytes": "1"})
    with local.opened(partition_at(tmp_path / "prices-0"), config, ManualClock(T0)) as log:
        upload(log, store)
    before = list_remote_segments(store)
    places = ByteSources(store.url)
    plan = bucket_plan(places, before, config, first_dirty_offset=0, now_ms=T0, job=JOB)
    (made,) = compact_in_process([plan.plan])
    target = InBucket(places.store, BucketJob(places.store, ["latest"], JOB), ManualClock(T0))
    target.replace(plan, bucket.new_manifests(made))
    after = list_remote_segments(store)
    offsets = [[(each.base_offset, each.end_offset) for each in found] for found in (before, after)]
    assert offsets[0] == offsets[1]
    assert len(after) > 1
    found = bucket_batches(store)
    assert [len(batch.records) for batch in found] == [0] * (len(after) - 1) + [1]


def test_the_last_batch_is_found_from_headers(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    batches = [build_batch([Record(n, 5, b"k", b"v" * 200)], base_offset=n) for n in range(3)]
    path.write_bytes(b"".join(batches))
    source = SourceSegment(0, 3, path.stat().st_size, Place(PlaceTier.LOCAL, str(path)), str(path), 0)
    with sources.open_records(source, ByteSources()) as records:
        last = sources.last_batch(records)
        assert last is not None
        assert last.base_offset == 2
    with sources.open_records(replace(source, size=0), ByteSources()) as records:
        assert sources.last_batch(records) is None
