"""Positions and sizes beyond 2^31 and 2^32, on files with holes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import RemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import INT32_MAX
from stratalog.remote.reading.segment_blocks import SegmentBlocks
from stratalog.remote.storage.manifest import BLOCK_BYTES, SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.util.checksum import crc32c
from tests.remote.test_true_sizes import without_true_size
from tests.remote.values import segment
from tests.remote.world import World
from tests.support.huge_log import (
    RECORDS_IN_LANDMARK,
    HugePartition,
    SparseObjectStore,
    huge_directory,
    write_huge_partition,
)

SIZE = 2**32 + 3 * BLOCK_BYTES + 17


def test_records_behind_four_gigabytes_are_read_and_checked(tmp_path: Path) -> None:
    batch = build_batch([Record(offset=9, timestamp_ms=1, key=None, value=b"far out")], base_offset=9)
    position = SIZE - len(batch)
    metadata = segment(1, 0, 9, size=SIZE)
    zeros = crc32c(bytes(BLOCK_BYTES))
    tail = bytes(SIZE % BLOCK_BYTES)
    last = (bytes(BLOCK_BYTES) + tail)[: BLOCK_BYTES + len(tail) - len(batch)] + batch
    crcs = [zeros] * (SIZE // BLOCK_BYTES - 1) + [crc32c(last[:BLOCK_BYTES]), crc32c(last[BLOCK_BYTES:])]
    manifest = SegmentManifest.of(metadata, {ObjectKind.LOG: StoredObject(SIZE, 0)}, tuple(crcs))
    assert len(manifest.to_json()) < 30_000

    store = ObjectStore.from_url(tmp_path.as_uri())
    path = tmp_path / manifest.key()
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(SIZE)
        file.seek(position)
        file.write(batch)
    store.put(manifest.key(ObjectKind.MANIFEST), manifest.to_json())

    rsm = ObjectStoreRemoteStorageManager(store)
    assert rsm.manifest(metadata).segment_size_in_bytes == SIZE
    assert bytes(rsm.fetch_log_segment(metadata, position)) == batch
    assert bytes(rsm.fetch_log_segment(metadata, 2**32 - 1, 2**32 + 1)) == b"\0\0"
    blocks = SegmentBlocks(rsm)
    data = b"".join(blocks.read(metadata, position, SIZE + 100))
    assert [b.base_offset for b in iter_batches(data)] == [9]
    blocks.close()
    rsm.close()


# --- one segment of 4 GiB and a bit, from the log to the store and back -----------------------------------------------

CONFIG = LogConfig(
    segment_bytes=8 * 2**30,
    retention_ms=-1,
    local_retention_bytes=1,
    remote_storage_enable=True,
    use_large_index_format=True,
)


class HugeWorld(World):
    """A `World` over a partition of one sealed huge segment and an active one."""

    huge: HugePartition

    @classmethod
    def at(cls, home: Path, config: LogConfig = CONFIG) -> HugeWorld:
        huge = write_huge_partition(home / "t-0")
        store = SparseObjectStore.at(home / "store")
        world = cls(home, config, store=store, recovery_point=huge.active_base)
        world.huge = huge
        return world

    def expect_landmarks(self) -> None:
        """Batches on both sides of the borders and across them are read from the store, by offset and by time."""
        for base, batch in self.huge.landmarks.items():
            for offset in range(base, base + RECORDS_IN_LANDMARK):
                assert self.manager.read(self.partition, offset, 1).records == batch
            by_time = self.manager.offset_for_timestamp(self.partition, self.huge.timestamp_of(base), 0)
            assert by_time == (self.huge.timestamp_of(base), base)


@pytest.fixture
def home() -> Iterator[Path]:
    with huge_directory() as path:
        yield path


def test_a_segment_beyond_four_gib_is_copied_deleted_here_and_read_from_the_store(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HugeWorld.at(home) as world:
        size = world.huge.size
        assert size > 2**32
        assert world.manager.copy_lag(world.partition).size_bytes == size
        with caplog.at_level(logging.WARNING):
            world.tier()
        clamped = [record for record in caplog.records if f"has {size} bytes" in record.getMessage()]
        assert len(clamped) == 1
        assert world.manager.copy_lag(world.partition).size_bytes == 0
        assert world.manager.sizes(world.partition).readable_bytes == size
        world.drop_local()
        assert world.log.local_log_start_offset == world.huge.active_base

        (manifest,) = list_remote_segments(world.inner)
        assert manifest.segment_size_in_bytes == size
        assert manifest.offset_index_entry_size == 12
        world.expect_landmarks()

        # An index that is lost is made of the records, which go beyond what 8 bytes for an entry can say.
        world.inner.delete([manifest.key(ObjectKind.OFFSET_INDEX)])
        world.index_cache_forget()
        world.expect_landmarks()

        # Metadata that Kafka has rewritten knows 2^31 - 1 bytes only.
        values = world.metadata_log.values
        world.metadata_log.values = [[without_true_size(value) for value in each] for each in values]
        world.metadata_log.snapshots.clear()
        world.restart()
        (known,) = world.rlmm.list_remote_log_segments(world.partition)
        assert known.segment_size_bytes == INT32_MAX
        assert world.manager.sizes(world.partition).readable_bytes == size
        world.expect_landmarks()

        world.append(1)
        world.configure(retention_bytes=1)
        world.tier()
        assert world.log.log_start_offset == world.huge.active_base
        assert world.objects() == []


def test_a_plugin_of_32_bits_gets_nothing_of_it_and_it_stays_here(home: Path) -> None:
    with HugeWorld.at(home) as world:
        world.limit_positions(INT32_MAX)
        with pytest.raises(RemoteStorageError, match=f"position {world.huge.size} is out of reach"):
            world.tier()
        assert world.objects() == []
        assert world.rlmm.list_remote_log_segments(world.partition) == []
        assert world.drop_local() == 0
        assert world.manager.copy_lag(world.partition).size_bytes == world.huge.size
