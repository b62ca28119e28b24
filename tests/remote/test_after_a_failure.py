"""What the remote tier keeps from one segment to the next, with the work on one of them failing at every step.

Invariant: whatever became of the first segment, the next ones are served, copied and counted as by a new process, and
the first one too, once nothing fails any more.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from pathlib import Path
from uuid import UUID

import pytest

from stratalog.errors import RemoteStorageError, StratalogError
from stratalog.log.format.offset_index_format import LEGACY
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import IndexType, RemoteLogSegmentMetadata
from stratalog.remote.reading.index_cache import DELETED_SUFFIX, RemoteIndexCache
from stratalog.remote.reading.segment_blocks import SegmentBlocks
from stratalog.remote.tier.log_view import topic_id_partition
from stratalog.testing.failing_filesystem import EVERYTHING, FailingFileSystem
from stratalog.testing.faulty_store import FaultPlan, StoreFault
from tests.remote.values import segment
from tests.remote.world import CONFIG, UnsyncedFileSystem, World

# Flipped bits are found by the checksums of who fetches: `test_faults.py`.
FAULTS = [StoreFault.UNAVAILABLE, StoreFault.DENIED, StoreFault.LOST_ANSWER, StoreFault.SHORT]


def metadata_of(number: int) -> RemoteLogSegmentMetadata:
    return segment(number, number * 1000, number * 1000 + 999, size=1_000, max_timestamp=5_000, txn_index_empty=False)


class Store:
    """Indexes and records of any segment, each unlike those of the others; every fetch is a step of `faults`."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults

    def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        number = metadata.start_offset // 1000
        if index_type is IndexType.OFFSET:
            return b"".join(LEGACY.entry.pack(n * 10 + number, n * 40 + number) for n in range(1, 20))
        if index_type is IndexType.TIMESTAMP:
            return struct.pack(">qi", 5_000, 190 + number)
        return b""

    def records(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        return bytes([metadata.start_offset // 1000]) * 1_000

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        return bytes(
            self.faults.step(f"{index_type} of {metadata.start_offset}", lambda: self.index(metadata, index_type))
        )

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> bytes:
        return bytes(self.faults.step(f"records of {metadata.start_offset}", lambda: self.records(metadata)[start:end]))


def expect_served(cache: RemoteIndexCache, store: Store, path: Path, number: int) -> None:
    """The indexes of a segment are its own."""
    metadata = metadata_of(number)
    with cache.indexes(metadata) as found:
        assert found.offset_index.path.read_bytes() == store.index(metadata, IndexType.OFFSET)
        assert found.time_index.path.read_bytes() == store.index(metadata, IndexType.TIMESTAMP)
        assert found.offset_index.lookup(metadata.start_offset + 15 + number).offset == number * 1001 + 10
        assert found.txn_index.all == []
    stems = {each.name.split(".")[0] for each in path.iterdir() if each.suffix != DELETED_SUFFIX}
    assert all(not each.name.endswith(".tmp") for each in path.iterdir() if each.name.startswith(f"{number}000_"))
    assert any(stem.startswith(f"{number}000_") for stem in stems)


def expect_as_new(cache: RemoteIndexCache, store: Store, path: Path) -> None:
    """Others are served, and the one that failed too; no lock and no count of the failure is left."""
    for number in (2, 3, 1):
        expect_served(cache, store, path, number)
    assert not cache._loading
    assert len(cache) == 3
    cache.close()
    again = RemoteIndexCache(path, store, capacity_bytes=10**6)  # type: ignore[arg-type]
    assert len(again) == 3
    again.close()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", range(1, 8))
def test_the_index_cache_after_a_store_that_failed_at_any_step(tmp_path: Path, step: int, fault: StoreFault) -> None:
    faults = FaultPlan()
    store = Store(faults)
    cache = RemoteIndexCache(tmp_path, store, capacity_bytes=10**6)  # type: ignore[arg-type]
    faults.at(step, fault)
    try:
        with cache.indexes(metadata_of(1)):
            pass
    except StratalogError:
        cache.invalidate(metadata_of(1).segment_id.id)
    faults.heal()
    expect_as_new(cache, store, tmp_path)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_the_index_cache_after_a_disk_that_failed_at_any_step(tmp_path: Path, error: int) -> None:
    step = 0
    while True:
        fs = FailingFileSystem()
        store = Store(FaultPlan())
        path = tmp_path / str(step)
        cache = RemoteIndexCache(path, store, capacity_bytes=10**6, fs=fs)  # type: ignore[arg-type]
        fs.fail_once(path, error, after=step, operations=EVERYTHING)
        failure: Exception | None = None
        try:
            with cache.indexes(metadata_of(1)):
                pass
        except (StratalogError, OSError) as raised:
            failure = raised
        has_failed = fs.has_failed
        fs = FailingFileSystem()
        if not has_failed:
            break
        assert failure is None or isinstance(failure, (RemoteStorageError, OSError)), (step, failure)
        expect_as_new(cache, store, path)
        step += 1
    assert step > 10


@pytest.mark.parametrize("fault", [StoreFault.UNAVAILABLE, StoreFault.DENIED, StoreFault.LOST_ANSWER])
@pytest.mark.parametrize("step", range(1, 11))
def test_blocks_after_a_store_that_failed_at_any_step(step: int, fault: StoreFault) -> None:
    faults = FaultPlan()
    store = Store(faults)
    blocks = SegmentBlocks(store, block_bytes=100, capacity_bytes=600, blocks_ahead=2)  # type: ignore[arg-type]

    def read_all(number: int) -> bytes:
        metadata = metadata_of(number)
        return b"".join(bytes(piece) for at in range(0, 1_000, 50) for piece in blocks.read(metadata, at, at + 50))

    faults.at(step, fault)
    with pytest.raises(RemoteStorageError):
        read_all(1)
    for number in (2, 1, 3):
        assert read_all(number) == store.records(metadata_of(number))
    blocks.close()


@pytest.mark.parametrize("fault", [StoreFault.UNAVAILABLE, StoreFault.DENIED, StoreFault.LOST_ANSWER])
def test_the_copy_task_after_a_store_that_failed_at_any_step(tmp_path: Path, fault: StoreFault) -> None:
    """The quota, the ids in flight and the cache of the same process go on with the next copy."""
    with World(tmp_path / "dry") as world:
        world.append(25)
        before = len(world.faults.steps)
        world.tier()
        steps = len(world.faults.steps) - before
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            world.append(25)
            world.faults.at(step, fault)
            with contextlib.suppress(StratalogError, OSError):
                world.tier()
            world.faults.heal()
            for _ in range(3):
                world.clock.advance(600_000)
                world.tier()
            world.append(10)
            world.tier()
            assert world.manager.copy_lag(world.partition).segments == 0
            world.drop_local()
            assert world.log.local_log_start_offset > 0
            world.expect_everything()
            assert world.orphans() == []


def other_topic(world: World) -> PartitionLog:
    """A log of another topic, with records of its own, in the care of the same manager."""
    log = PartitionLog.open(
        world.path / "u-0",
        CONFIG,
        topic_id=UUID(int=77),
        clock=world.clock,
        fs=UnsyncedFileSystem(),
        clean_shutdown=False,
    )
    log.leader_epochs.assign(0, 0)
    for n in range(25):
        batch = build_batch([Record(0, world.clock.now_ms(), b"other", b"%d" % n * 300)])
        log.append_as_leader(batch, leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    world.manager.on_leadership_change([world.log, log])
    return log


def expect_copied(world: World, log: PartitionLog, wanted: list[bytes]) -> None:
    """The manager serves the log from remote segments of its own, byte for byte, and lags by none."""
    partition = topic_id_partition(log)
    assert world.manager.copy_lag(partition).segments == 0
    log.delete_old_segments()
    assert log.local_log_start_offset > 0
    found: list[bytes] = []
    while len(found) < log.local_log_start_offset:
        records = world.manager.read(partition, len(found), 10_000).records
        found += [bytes(batch.as_memoryview()) for batch in iter_batches(records)]
    assert found[: log.local_log_start_offset] == wanted[: log.local_log_start_offset]


def local_batches(log: PartitionLog) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < log.log_end_offset:
        fetched = log.read(len(found), 10_000)
        assert fetched.slice is not None
        found += [bytes(batch.as_memoryview()) for batch in iter_batches(fetched.slice.read())]
    return found


@pytest.mark.parametrize("fault", [StoreFault.DENIED, StoreFault.LOST_ANSWER])
def test_another_topic_is_copied_after_a_store_that_failed_at_any_step_of_the_first(
    tmp_path: Path, fault: StoreFault
) -> None:
    step = 0
    while True:
        step += 1
        with World(tmp_path / str(step)) as world:
            world.append(18)
            other = other_topic(world)
            wanted = local_batches(other)
            before = len(world.faults.steps)
            world.faults.at(step, fault)
            with contextlib.suppress(StratalogError, OSError):
                world.tier()
            has_failed = len(world.faults.steps) - before >= step
            world.faults.heal()
            world.manager.run_once(topic_id_partition(other))  # at once: the failure is none of its own
            expect_copied(world, other, wanted)
            for _ in range(3):
                world.clock.advance(600_000)
                world.tier()
            world.drop_local()
            world.expect_everything()
            other.close()
        if not has_failed:
            break
    assert step > 10
