"""A compaction that ends at any step: everything is served at every moment, and the next run finishes."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from stratalog.errors import RemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.byte_sources import ByteSources
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.compaction import bucket, data_dirs, local
from stratalog.jobs.compaction.bucket import BucketPlan
from stratalog.jobs.compaction.bucket_job import BucketJob, job_above
from stratalog.jobs.compaction.metadata_topic import TieredCluster
from stratalog.jobs.compaction.tiered import Destination, InBucket, InCluster
from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from stratalog.remote.metadata.partitioner import metadata_partition
from stratalog.remote.metadata.serde import encode
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_names import ObjectKey
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.plain_view import PlainView
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.transactions.bucket_transaction import finish_publications
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed
from stratalog.util.filesystem import FileSystem
from stratalog.util.uuids import uuid_to_base64
from tests.jobs.compaction.in_process import compact_in_process
from tests.jobs.compaction.lives import (
    PARTITION,
    Found,
    bucket_batches,
    cleanable_end,
    lived,
    partition_at,
    upload,
)
from tests.log.cleaner.test_crash_in_a_cleaning import CONFIG, NOW, Life
from tests.remote.test_publication import FailingAfter
from tests.remote.world import MemoryMetadataLog

# --- log directories --------------------------------------------------------------------------------------------------


def compact_locally(life: Life) -> None:
    partition = data_dirs.LocalPartition("t", 0, life.directory, False, None, None, 0, life.recovery_point)
    planned = local.plan_of(partition, CONFIG, ManualClock(NOW), life.fs)
    (made,) = compact_in_process([planned.plan])
    for new in made:
        adopt(Path(new.directory), life.fs)
    local.swap_in(planned, made, ManualClock(NOW), life.fs)


def adopt(directory: Path, fs: FileSystem) -> None:
    """Write what workers wrote through `fs`, durably, as they did."""
    contents = {path: path.read_bytes() for path in directory.iterdir()}
    shutil.rmtree(directory)
    fs.make_dirs(directory)
    for path, content in contents.items():
        with fs.open(path, create=True) as file:
            file.write_at(content, 0)
            file.sync()
    fs.sync_dir(directory)


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill-9", "power-loss"])
def test_a_compaction_may_be_killed_at_any_change(tmp_path: Path, power_loss: bool) -> None:
    whole = Life(tmp_path / "whole" / "t-0", 0)
    whole.log.close()
    before = whole.fs.changes
    compact_locally(whole)
    steps = whole.fs.changes - before
    whole.log = whole.open()
    assert whole.offsets() == sorted(whole.newest.values())
    for step in range(0, steps, 5):
        life = Life(tmp_path / str(step) / "t-0", step)
        life.log.close()
        life.fs.kill_at = step
        with contextlib.suppress(Killed):
            compact_locally(life)
        life.fs.crash(power_loss=power_loss)
        data_dirs.clear_attempts(life.directory)
        life.log = life.open()
        life.check(step)
        life.log.close()
        compact_locally(life)
        life.log = life.open()
        assert life.offsets() == sorted(life.newest.values()), step


# --- buckets ----------------------------------------------------------------------------------------------------------


class FailingMetadataLog(MemoryMetadataLog):
    """Takes so many appends yet."""

    left = 1 << 30

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        return self.append_all(partition, [value], timestamp_ms)

    def append_all(self, partition: int, values: Sequence[bytes], timestamp_ms: int) -> int:
        self.left -= 1
        if self.left < 0:
            raise RemoteStorageError("the process ended")
        first = len(self.values[partition])
        for value in values:
            super().append(partition, value, timestamp_ms)
        return first


class Tier:
    """A bucket with a random life in it, and a metadata topic that knows its segments."""

    #: Whether an attempt of every task is lost before the one that is heard of.
    dies_once = False

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        directory, self.config, self.now_ms = lived(
            seed, root / "life", codecs=False, old_formats=False, large_index=False, steps=40
        )
        self.url = (root / "bucket").as_uri()
        self.store = ObjectStore.from_url(self.url)
        with local.opened(partition_at(directory), self.config, ManualClock(self.now_ms)) as log:
            log.truncate_to(cleanable_end(log))
            log.update_high_watermark(log.log_end_offset)
            log.roll()
            upload(log, self.store)
        self.log = FailingMetadataLog()
        for manifest in self.listed():
            finished = manifest.metadata()
            started = RemoteLogSegmentMetadata(
                finished.segment_id,
                *(finished.start_offset, finished.end_offset, finished.max_timestamp_ms, 0, 1),
                *(finished.segment_size_bytes, finished.segment_leader_epochs),
                txn_index_empty=finished.txn_index_empty,
            )
            update = RemoteLogSegmentMetadataUpdate(finished.segment_id, 1, None, finished.state, 0)
            number = metadata_partition(PARTITION, self.log.partition_count)
            self.log.append_all(number, [encode(started), encode(update)], 1)

    def listed(self) -> list[SegmentManifest]:
        return list_remote_segments(self.store, covered=True)

    def target(self, store: ObjectStore, *, served: bool) -> Destination:
        clock = ManualClock(self.now_ms)
        job = BucketJob(store, [PARTITION.topic], self.job)
        if served:
            return InCluster(store, job, TieredCluster(self.log, clock), clock)
        return InBucket(store, job, clock)

    def compact(self, store: ObjectStore, *, served: bool, driver_dies: bool = False) -> BucketPlan:
        finish_publications(store)
        self.job = job_above(each.segment_id for each in self.listed())
        target = self.target(store, served=served)
        target.begin(self.listed())
        plan = bucket.bucket_plan(
            ByteSources(self.url),
            target.readable(self.listed()),
            self.config,
            first_dirty_offset=0,
            now_ms=self.now_ms,
            job=self.job,
        )
        if self.dies_once:
            compact_in_process([plan.plan])
            self.dies_once = False
        if driver_dies:
            raise Killed
        (made,) = compact_in_process([plan.plan])
        target.replace(plan, bucket.new_manifests(made))
        target.clean_up(0)
        return plan

    def served(self) -> list[SegmentManifest]:
        """What brokers read, offset by offset: each a readable segment whose manifest and objects are there."""
        manager = TopicBasedRemoteLogMetadataManager(self.log)
        by_id = {each.segment_id: each for each in self.listed()}
        found: list[SegmentManifest] = []
        known = manager.list_remote_log_segments(PARTITION)
        end = max(each.end_offset for each in known)
        offset = min(each.start_offset for each in known)
        while offset <= end:
            epochs = sorted({epoch for each in known for epoch in each.segment_leader_epochs}, reverse=True)
            segment = next(
                each
                for epoch in epochs
                if (each := manager.remote_log_segment_metadata(PARTITION, epoch, offset)) is not None
            )
            found.append(by_id[segment.segment_id.id])
            offset = segment.end_offset + 1
        return found


def survivors(found: list[Found]) -> set[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record."""
    return {(record.offset, record.key, record.value) for batch in found for record in batch.records}


@pytest.mark.parametrize("served", [False, True], ids=["bucket", "cluster"])
def test_a_compaction_of_a_bucket_may_end_at_any_step(tmp_path: Path, served: bool) -> None:
    """At any change of the store (every other one, by turns), and at any event of the metadata topic."""
    tier = Tier(tmp_path, 52)
    objects, events = tmp_path / "objects", [list(each) for each in tier.log.values]
    shutil.copytree(tmp_path / "bucket", objects)
    before = tier.listed()
    tier.compact(tier.store, served=served)
    expected = survivors(bucket_batches(tier.store))
    steps = 0
    for of_store in [True, False] if served else [True]:
        for step in range(int(served), 200, 2 if of_store else 1):
            shutil.rmtree(tmp_path / "bucket")
            shutil.copytree(objects, tmp_path / "bucket")
            tier.log = FailingMetadataLog()
            tier.log.values[:] = [list(each) for each in events]
            tier.log.left = 1 << 30 if of_store else step
            is_done = False
            with suppress(RemoteStorageError):
                tier.compact(FailingAfter(tier.store, step) if of_store else tier.store, served=served)
                is_done = True
            tier.log.left = 1 << 30
            seen = list_remote_segments(tier.store)
            assert (seen[0].base_offset, seen[-1].end_offset) == (
                before[0].base_offset,
                before[-1].end_offset,
            )
            assert survivors(bucket_batches(tier.store)) >= expected, step
            if served:
                reader = PlainView(ObjectStoreRemoteStorageManager(tier.store).reader).reader
                assert all(reader.read(each, next(iter(each.objects))) for each in tier.served()), step
            if is_done:
                break
            tier.compact(tier.store, served=served)
            assert survivors(bucket_batches(tier.store)) == expected, step
            assert audit_bucket(tier.store, AuditOptions(now_ms=2**60, grace_ms=0)).findings == [], step
            assert not [each for each in tier.store.list("_publications") if each.key.endswith(".job")]
            steps += 1
    assert steps > 10
    audited = audit_bucket(tier.store, AuditOptions(now_ms=2**60, grace_ms=0, deep=True))
    assert audited.findings == []


@pytest.mark.parametrize(("driver", "served"), [(False, False), (True, True)], ids=["task", "driver"])
def test_what_an_attempt_that_died_had_put_does_not_stay(tmp_path: Path, driver: bool, served: bool) -> None:
    """An executor was lost after the upload, and no one ever heard of the new segments; or the driver was."""
    undisturbed = Tier(tmp_path / "undisturbed", 52)
    undisturbed.compact(undisturbed.store, served=served)
    tier = Tier(tmp_path / "tier", 52)
    tier.dies_once = True
    before = len(list(tier.store.list()))
    if driver:
        with pytest.raises(Killed):
            tier.compact(tier.store, served=served, driver_dies=True)
        assert len(list(tier.store.list())) > before
    tier.compact(tier.store, served=served)
    assert bucket_batches(tier.store) == bucket_batches(undisturbed.store)
    assert kinds_of(tier.store) == kinds_of(undisturbed.store)


def kinds_of(store: ObjectStore) -> list[str]:
    """The bucket's objects by base offset and kind; ids are drawn."""
    keys = [ObjectKey.parse(info.key) for info in store.list()]
    return sorted(f"{key.start_offset} {key.kind.value}" for key in keys if key is not None)


def test_ids_of_a_job_are_larger_than_all_before_it() -> None:
    """Of our broker's view: job after job, a thousand times, past the ids that would be spelled with a dash."""
    known = [UUID(int=(62 << 122) - uuid4().int % (1 << 114)) for _ in range(1000)]
    for _ in range(1000):
        job = job_above(known)
        assert job > max(known)
        assert not uuid_to_base64(job).startswith("-")
        known = [job, *known[:9]]
    assert job_above([UUID(int=2**128 - 1)]).version == 4
    below_dash = UUID(int=(62 << 122) - 1)
    assert uuid_to_base64(job_above([below_dash])).startswith("_")
