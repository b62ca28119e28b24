"""The contract of storage plugins of the remote tier, as tests that their authors run.

    from stratalog.testing.remote_storage_contract import RemoteStorageManagerContract

    class TestMyPlugin(RemoteStorageManagerContract):
        def make_plugin(self, tmp_path):
            plugin = MyPlugin()
            plugin.configure({"directory": str(tmp_path / "store")})
            return plugin

Run it with pytest. Every test gets a directory of its own; plugins made for the same one see the same store. Needs
pytest, which the extra `dev` brings; nothing else in the package imports this module. `docs/how-to/storage_plugins.md`
has a whole plugin.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from stratalog.errors import RemoteResourceNotFoundError, RemoteStorageError
from stratalog.remote.api import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from stratalog.util import random_uuid

_EPOCHS = b"0\n1\n0 0\n"


@dataclass(frozen=True, slots=True)
class SegmentToCopy:
    """A segment with the bytes that it consists of. An index that it has not is not in `indexes`."""

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData
    records: bytes
    indexes: dict[IndexType, bytes]


def make_segment(
    directory: Path,
    partition: TopicIdPartition,
    *,
    size: int,
    start_offset: int = 0,
    transactions: bool = True,
    snapshot: bool = True,
) -> SegmentToCopy:
    """Return a sealed segment of random bytes as files below `directory`, with metadata as when a copy begins."""
    segment_id = RemoteLogSegmentId.generate_new(partition)
    place = directory / segment_id.id.hex
    place.mkdir(parents=True)
    records = os.urandom(size)
    indexes = {
        IndexType.OFFSET: os.urandom(800),
        IndexType.TIMESTAMP: os.urandom(120),
        IndexType.LEADER_EPOCH: _EPOCHS,
    }
    if transactions:
        indexes[IndexType.TRANSACTION] = os.urandom(34)
    if snapshot:
        indexes[IndexType.PRODUCER_SNAPSHOT] = os.urandom(99)
    (place / "log").write_bytes(records)
    for index_type, content in indexes.items():
        (place / index_type.value).write_bytes(content)
    data = LogSegmentData(
        log_segment=place / "log",
        offset_index=place / IndexType.OFFSET.value,
        time_index=place / IndexType.TIMESTAMP.value,
        transaction_index=place / IndexType.TRANSACTION.value if transactions else None,
        producer_snapshot_index=place / IndexType.PRODUCER_SNAPSHOT.value if snapshot else None,
        leader_epoch_index=_EPOCHS,
    )
    metadata = RemoteLogSegmentMetadata(
        segment_id=segment_id,
        start_offset=start_offset,
        end_offset=start_offset + 99,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_001_000,
        segment_size_bytes=size,
        segment_leader_epochs={0: start_offset},
        txn_index_empty=not transactions,
    )
    return SegmentToCopy(metadata, data, records, indexes)


class RemoteStorageManagerContract(ABC):
    """Subclass it as `Test...` and say how a plugin is made."""

    #: Bytes of the larger segments; more than a plugin stores at a time, so that seams are crossed.
    segment_bytes: ClassVar[int] = 3 * 1024 * 1024 + 5

    @abstractmethod
    def make_plugin(self, tmp_path: Path) -> RemoteStorageManager:
        """Return a plugin that is configured; those made with the same path share one store."""

    @pytest.fixture
    def plugin(self, tmp_path: Path) -> Iterator[RemoteStorageManager]:
        made = self.make_plugin(tmp_path)
        yield made
        made.close()

    @pytest.fixture
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(random_uuid(), "contract", 3)

    @pytest.fixture
    def segment(self, tmp_path: Path, partition: TopicIdPartition) -> SegmentToCopy:
        return make_segment(tmp_path / "files", partition, size=self.segment_bytes)

    @pytest.fixture
    def copied(self, plugin: RemoteStorageManager, segment: SegmentToCopy) -> SegmentToCopy:
        """Return a segment after its copy, with the custom metadata that the plugin gave."""
        custom = plugin.copy_log_segment_data(segment.metadata, segment.data)
        return replace(segment, metadata=replace(segment.metadata, custom_metadata=custom))

    # --- what it is ---------------------------------------------------------------------------------------------------

    def test_it_is_a_storage_manager(self, plugin: RemoteStorageManager) -> None:
        assert isinstance(plugin, RemoteStorageManager)

    def test_it_can_be_closed_twice(self, tmp_path: Path) -> None:
        plugin = self.make_plugin(tmp_path)
        plugin.close()
        plugin.close()

    # --- copy and fetch -----------------------------------------------------------------------------------------------

    def test_records_come_back(self, plugin: RemoteStorageManager, copied: SegmentToCopy) -> None:
        assert bytes(plugin.fetch_log_segment(copied.metadata, 0)) == copied.records

    def test_any_range_of_the_records_is_that_range(self, plugin: RemoteStorageManager, copied: SegmentToCopy) -> None:
        size, mib = len(copied.records), 1024 * 1024
        ranges = [
            (0, 1),
            (0, size),
            (1, 2),
            (mib - 1, mib + 1),
            (mib, 2 * mib),
            (mib + 1, size),
            (size - 1, size),
            (size // 2, size // 2),
        ]
        for start, end in ranges:
            assert bytes(plugin.fetch_log_segment(copied.metadata, start, end)) == copied.records[start:end]

    def test_a_range_ends_with_the_records(self, plugin: RemoteStorageManager, copied: SegmentToCopy) -> None:
        size = len(copied.records)
        assert bytes(plugin.fetch_log_segment(copied.metadata, size - 3, size + 100)) == copied.records[-3:]
        assert bytes(plugin.fetch_log_segment(copied.metadata, size - 3)) == copied.records[-3:]
        assert bytes(plugin.fetch_log_segment(copied.metadata, size, size + 1)) == b""

    def test_all_five_indexes_come_back(self, plugin: RemoteStorageManager, copied: SegmentToCopy) -> None:
        assert {kind: bytes(plugin.fetch_index(copied.metadata, kind)) for kind in IndexType} == copied.indexes

    def test_an_index_that_the_segment_has_not_is_not_found(
        self, plugin: RemoteStorageManager, partition: TopicIdPartition, tmp_path: Path
    ) -> None:
        made = make_segment(tmp_path / "files", partition, size=100, transactions=False, snapshot=False)
        custom = plugin.copy_log_segment_data(made.metadata, made.data)
        metadata = replace(made.metadata, custom_metadata=custom)
        for kind in (IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT):
            with pytest.raises(RemoteResourceNotFoundError):
                plugin.fetch_index(metadata, kind)
        assert bytes(plugin.fetch_index(metadata, IndexType.OFFSET)) == made.indexes[IndexType.OFFSET]

    def test_an_empty_index_is_there_and_empty(self, plugin: RemoteStorageManager, segment: SegmentToCopy) -> None:
        segment.data.offset_index.write_bytes(b"")
        custom = plugin.copy_log_segment_data(segment.metadata, segment.data)
        assert bytes(plugin.fetch_index(replace(segment.metadata, custom_metadata=custom), IndexType.OFFSET)) == b""

    def test_what_was_never_copied_is_not_found(self, plugin: RemoteStorageManager, segment: SegmentToCopy) -> None:
        with pytest.raises(RemoteResourceNotFoundError):
            plugin.fetch_log_segment(segment.metadata, 0, 10)
        with pytest.raises(RemoteResourceNotFoundError):
            plugin.fetch_index(segment.metadata, IndexType.OFFSET)

    def test_copying_again_overwrites(self, plugin: RemoteStorageManager, copied: SegmentToCopy) -> None:
        records = os.urandom(len(copied.records))
        copied.data.log_segment.write_bytes(records)
        custom = plugin.copy_log_segment_data(copied.metadata, copied.data)
        metadata = replace(copied.metadata, custom_metadata=custom)
        assert bytes(plugin.fetch_log_segment(metadata, 0)) == records

    def test_a_copy_whose_files_are_gone_fails_with_a_typed_error(
        self, plugin: RemoteStorageManager, segment: SegmentToCopy
    ) -> None:
        segment.data.log_segment.unlink()
        with pytest.raises((RemoteStorageError, FileNotFoundError)):
            plugin.copy_log_segment_data(segment.metadata, segment.data)

    def test_the_files_are_left_as_they_were(self, copied: SegmentToCopy) -> None:
        assert copied.data.log_segment.read_bytes() == copied.records
        assert copied.data.offset_index.read_bytes() == copied.indexes[IndexType.OFFSET]

    # --- several ------------------------------------------------------------------------------------------------------

    def test_two_copies_of_the_same_offsets_are_two_segments(
        self, plugin: RemoteStorageManager, partition: TopicIdPartition, tmp_path: Path
    ) -> None:
        made = [make_segment(tmp_path / "files", partition, size=1000) for _ in range(2)]
        customs = [plugin.copy_log_segment_data(each.metadata, each.data) for each in made]
        first, second = (
            replace(each.metadata, custom_metadata=custom) for each, custom in zip(made, customs, strict=True)
        )
        assert bytes(plugin.fetch_log_segment(first, 0)) == made[0].records
        assert bytes(plugin.fetch_log_segment(second, 0)) == made[1].records
        plugin.delete_log_segment_data(first)
        assert bytes(plugin.fetch_log_segment(second, 0)) == made[1].records
        assert bytes(plugin.fetch_index(second, IndexType.TIMESTAMP)) == made[1].indexes[IndexType.TIMESTAMP]

    def test_another_instance_reads_what_this_one_copied(self, copied: SegmentToCopy, tmp_path: Path) -> None:
        other = self.make_plugin(tmp_path)
        assert bytes(other.fetch_log_segment(copied.metadata, 5, 500)) == copied.records[5:500]
        assert bytes(other.fetch_index(copied.metadata, IndexType.OFFSET)) == copied.indexes[IndexType.OFFSET]
        other.close()

    def test_many_threads_copy_fetch_and_delete_at_once(
        self, plugin: RemoteStorageManager, partition: TopicIdPartition, tmp_path: Path
    ) -> None:
        made = [
            make_segment(tmp_path / "files", partition, size=50_000, start_offset=100 * number) for number in range(8)
        ]

        def live(each: SegmentToCopy) -> bool:
            custom = plugin.copy_log_segment_data(each.metadata, each.data)
            metadata = replace(each.metadata, custom_metadata=custom)
            for start in range(0, 50_000, 9_999):
                piece = bytes(plugin.fetch_log_segment(metadata, start, start + 9_999))
                if piece != each.records[start : start + 9_999]:
                    return False
            plugin.delete_log_segment_data(metadata)
            return True

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(live, made)) == [True] * len(made)

    # --- delete -------------------------------------------------------------------------------------------------------

    def test_what_was_deleted_is_not_found_and_may_be_deleted_again(
        self, plugin: RemoteStorageManager, copied: SegmentToCopy
    ) -> None:
        for _ in range(2):
            plugin.delete_log_segment_data(copied.metadata)
            with pytest.raises(RemoteResourceNotFoundError):
                plugin.fetch_log_segment(copied.metadata, 0, 10)
            with pytest.raises(RemoteResourceNotFoundError):
                plugin.fetch_index(copied.metadata, IndexType.OFFSET)

    def test_what_was_never_copied_may_be_deleted(self, plugin: RemoteStorageManager, segment: SegmentToCopy) -> None:
        plugin.delete_log_segment_data(segment.metadata)

    def test_what_a_failed_copy_left_may_be_deleted(self, plugin: RemoteStorageManager, segment: SegmentToCopy) -> None:
        segment.data.time_index.unlink()
        with pytest.raises((RemoteStorageError, FileNotFoundError)):
            plugin.copy_log_segment_data(segment.metadata, segment.data)
        plugin.delete_log_segment_data(segment.metadata)
        with pytest.raises(RemoteResourceNotFoundError):
            plugin.fetch_log_segment(segment.metadata, 0, 10)
