"""Segments beyond 2^31 - 1 bytes whose metadata Kafka wrote: the manifest knows their size."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.api.interfaces import INT32_MAX, RemoteLogSegmentMetadata
from stratalog.remote.api.plugin import StoredSegment
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.metadata.serde import TRUE_SIZE_TAG, encode
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.reading.unclamped_sizes import KeepsTotals, UnclampedSizes
from stratalog.remote.tier.tier_facts import RemoteSizes
from stratalog.util.varint import encode_unsigned
from tests.remote.values import PARTITION, segment, update
from tests.remote.world import MemoryMetadataLog

TRUE_SIZE = 5 * 2**30 + 1
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Storage:
    """Only what is asked for here; counts."""

    def __init__(self, answer: Callable[[], StoredSegment]) -> None:
        self.answer = answer
        self.asked: list[RemoteLogSegmentMetadata] = []

    def stored_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        self.asked.append(metadata)
        return self.answer()


def metadata_of(*sizes: int, drop_tag: bool = True) -> TopicBasedRemoteLogMetadataManager:
    """Finished segments of these sizes; without the tagged field, as Kafka writes their metadata."""
    log = MemoryMetadataLog()
    rlmm = TopicBasedRemoteLogMetadataManager(log)
    for number, size in enumerate(sizes):
        rlmm.add_remote_log_segment_metadata(segment(number, number * 10, number * 10 + 9, size=size)).result()
        rlmm.update_remote_log_segment_metadata(update(number, FINISHED)).result()
    if drop_tag:
        log.values = [[without_true_size(value) for value in values] for values in log.values]
    return TopicBasedRemoteLogMetadataManager(log)


def without_true_size(value: bytes) -> bytes:
    """The bytes of an event as Kafka writes it again once it has read it."""
    tag = encode_unsigned(TRUE_SIZE_TAG) + encode_unsigned(8)
    at = value.find(tag)
    if at < 0:
        return value
    count = value.rindex(b"\x02", 0, at)  # the tags of a segment without transactions: two, and one is left
    return value[:count] + b"\x01" + value[count + 1 : at] + value[at + len(tag) + 8 :]


def sizes(rlmm: UnclampedSizes) -> list[int]:
    return [found.segment_size_bytes for found in rlmm.list_remote_log_segments(PARTITION)]


def over(rlmm: TopicBasedRemoteLogMetadataManager, storage: object) -> UnclampedSizes:
    return UnclampedSizes(rlmm, storage)  # type: ignore[arg-type]


def test_every_lookup_has_the_size_of_the_manifest_and_asks_for_it_once() -> None:
    storage = Storage(lambda: StoredSegment(TRUE_SIZE, None))
    rlmm = over(metadata_of(100, TRUE_SIZE, 300), storage)
    for _ in range(3):
        assert sizes(rlmm) == [100, TRUE_SIZE, 300]
        assert rlmm.remote_log_size(PARTITION, 0) == 400 + TRUE_SIZE
        found = rlmm.remote_log_segment_metadata(PARTITION, 0, 15)
        assert found is not None
        assert found.segment_size_bytes == TRUE_SIZE
    assert [metadata.start_offset for metadata in storage.asked] == [10]
    rlmm.forget(storage.asked[0].segment_id)
    assert sizes(rlmm) == [100, TRUE_SIZE, 300]
    assert len(storage.asked) == 2


def test_sums_have_true_sizes_whether_the_manager_keeps_totals_or_not() -> None:
    class Plain:
        """A metadata manager of somebody else, which keeps none."""

        def __init__(self, inner: TopicBasedRemoteLogMetadataManager) -> None:
            self.list_remote_log_segments = inner.list_remote_log_segments

    for keeps, inner in (
        (True, metadata_of(100, TRUE_SIZE, 300)),
        (False, Plain(metadata_of(100, TRUE_SIZE, 300))),
    ):
        storage = Storage(lambda: StoredSegment(TRUE_SIZE, None))
        rlmm = over(inner, storage)  # type: ignore[arg-type]
        assert isinstance(inner, KeepsTotals) is keeps
        assert rlmm.sizes(PARTITION) == RemoteSizes(3, 3, 400 + TRUE_SIZE)
        assert rlmm.sizes(PARTITION) == RemoteSizes(3, 3, 400 + TRUE_SIZE)
        assert len(storage.asked) == 1


def test_a_size_that_the_metadata_has_is_not_asked_for() -> None:
    storage = Storage(lambda: StoredSegment(0, None))
    assert sizes(over(metadata_of(100, TRUE_SIZE, drop_tag=False), storage)) == [100, TRUE_SIZE]
    assert storage.asked == []


def test_without_the_manifest_the_clamped_size_is_used_and_asked_for_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def unreachable() -> StoredSegment:
        raise RetriableRemoteStorageError("the store answered 503")

    storage = Storage(unreachable)
    rlmm = over(metadata_of(TRUE_SIZE), storage)
    with caplog.at_level(logging.WARNING):
        assert sizes(rlmm) == [INT32_MAX]
    assert "503" in caplog.text
    storage.answer = lambda: StoredSegment(TRUE_SIZE, None)
    assert sizes(rlmm) == [TRUE_SIZE]


def test_a_plugin_that_knows_no_more_leaves_the_clamped_size() -> None:
    assert sizes(over(metadata_of(TRUE_SIZE), object())) == [INT32_MAX]


def test_the_warning_of_a_clamped_size_comes_once_for_a_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        sizes(over(metadata_of(TRUE_SIZE, drop_tag=False), object()))
    assert [record.getMessage().count(str(TRUE_SIZE)) for record in caplog.records] == [1]


def test_the_fields_stand_in_the_bytes_as_documented() -> None:
    data = encode(segment(1, 0, 9, size=TRUE_SIZE))
    assert data.endswith(
        struct.pack(">i", INT32_MAX)  # the size that Kafka reads
        + b"\x00\x00"  # no custom metadata, COPY_SEGMENT_STARTED
        + b"\x02\x00\x01\x01"  # two tagged fields; 0, one byte: no transaction index
        + b"\x90\x4e\x08"  # 10000, eight bytes
        + struct.pack(">q", TRUE_SIZE)
    )
