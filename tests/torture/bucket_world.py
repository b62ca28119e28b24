"""One bucket and everybody who is at it: clusters that tier to it, copies of them, bulk jobs, compactions, all killed.

Invariants, after every step of a life:

1. Who owns the bucket serves every record that it acknowledged and did not expire, with its value; where the topic was
   compacted, the newest of each key, and nothing that was never there.
2. No one else takes a segment away or adds one.
3. Of a bulk write all rows are there at offsets that follow each other, or none; those that were reported are there.

Nothing here is concurrent: a seed is a story. What runs at the same time in the world is a writer that was killed at
some step, and another one that comes upon what it left.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from stratalog.errors import NotOwnerError, RetriableRemoteStorageError, StratalogError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.byte_sources import ByteSources
from stratalog.jobs.compaction import bucket
from stratalog.jobs.compaction.bucket_job import BucketJob, job_above
from stratalog.jobs.compaction.metadata_topic import TieredCluster
from stratalog.jobs.compaction.tiered import Destination, InBucket, InCluster
from stratalog.jobs.restore.bucket import plan_restore
from stratalog.jobs.restore.files import _events, write_partition
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.columns import decode_columns
from stratalog.records.record import Record
from stratalog.remote.api import RemotePartitionDeleteState
from stratalog.remote.metadata.partitioner import metadata_partition
from stratalog.remote.ownership.broker_ownership import BrokerOwnership, Claimant
from stratalog.remote.ownership.bucket_owner import DIRECTORY, give_up, read_owner, take_over
from stratalog.remote.ownership.owner_file import OWNERSHIP_FILE, OwnershipFile
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.tier.manager import RemoteLogManager
from stratalog.remote.transactions.bucket_transaction import finish_publications
from stratalog.spark.sink.bucket import BucketTarget
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.writer import BulkWriter
from stratalog.testing.clock import ManualClock
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, SimulatedCrash, StoreFault
from tests.jobs.compaction.in_process import compact_in_process
from tests.remote.world import (
    CONFIG,
    RECORDS_IN_BATCH,
    TOPIC_ID,
    MemoryMetadataLog,
    UnsyncedFileSystem,
    World,
)
from tests.spark.sink.schemas import schema_of

SCHEMA = schema_of("value string, partition int")
COMPACTED = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "false",
    "segment.bytes": "1048576",
    "min.compaction.lag.ms": "0",
}
FAULTS = (StoreFault.CRASH, StoreFault.CRASH_AFTER, StoreFault.UNAVAILABLE, StoreFault.LOST_ANSWER)


class EventLog(MemoryMetadataLog):
    """Takes several events at once, all or none, as one step."""

    def append_all(self, partition: int, values: Sequence[bytes], timestamp_ms: int) -> int:
        first = len(self.values[partition])
        self._faults.step("append metadata", lambda: self.values[partition].extend(values))
        return first


class Node(World):
    """A broker of a cluster on a data directory of its own. `acked`: what it has acknowledged, by offset."""

    def __init__(
        self,
        name: str,
        cluster: str,
        path: Path,
        store: ObjectStore,
        clock: ManualClock,
        *,
        leader_epoch: int = 0,
        log_start_offset: int = 0,
        events: list[list[bytes]] | None = None,
    ) -> None:
        self.name, self.cluster = name, cluster
        self._first = (leader_epoch, log_start_offset)
        self._events = events
        self.acked: dict[int, tuple[bytes, bytes]] = {}
        self.is_compacted = False
        #: Whether somebody else may have expired what its metadata name, since it was the owner or was restored.
        self.is_stale = False
        #: Restored from the bucket, which no one else has had since.
        self.is_fresh = False
        path.mkdir(exist_ok=True)
        super().__init__(path, CONFIG, store=store, clock=clock)

    def _metadata_log(self) -> EventLog:
        log = EventLog(faults=self.faults)
        log.values = self._events or log.values
        return log

    def _open(self) -> PartitionLog:
        if self._first != (0, 0):
            self.leader_epoch, self._log_start_offset = self._first
            self._first = (0, 0)
        return super()._open()

    def _manager(self) -> RemoteLogManager:
        manager = super()._manager()
        claimant = Claimant(self.cluster, 1, OwnershipFile(self.path), lambda topic_id: topic_id == TOPIC_ID)
        self.rsm.own(BrokerOwnership(self.store, claimant))
        return manager

    def kill(self) -> None:
        """End the process as it is, and start another one; without reporting that it stopped."""
        self.faults.heal()
        self.rsm._ownership = None
        self.restart(crashed=True)

    def produce(self, batches: int, number: Callable[[], int]) -> None:
        for _ in range(batches):
            self.clock.advance(1_000)
            now = self.clock.now_ms()
            records = [
                Record(n, now + n, b"k%d" % n, b"%s:%d " % (self.name.encode(), number()) + bytes(40))
                for n in range(RECORDS_IN_BATCH)
            ]
            info = self.log.append_as_leader(build_batch(records), leader_epoch=self.leader_epoch)
            self.log.update_high_watermark(self.log.log_end_offset)
            for n, record in enumerate(records):
                assert record.key is not None
                assert record.value is not None
                self.acked[info.first_offset + n] = (record.key, record.value)

    def lose_tail(self, at: int) -> None:
        """A crash of the machine takes what was not flushed: never acknowledged as such."""
        self.log.truncate_to(at)
        self.acked = {offset: reported for offset, reported in self.acked.items() if offset < at}
        self.kill()

    def serve(self) -> dict[int, tuple[bytes, bytes]]:
        """What a consumer gets from the log start on."""
        found: dict[int, tuple[bytes, bytes]] = {}
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            if offset < self.log.local_log_start_offset:
                records = self.manager.read(self.partition, offset, 3_000).records
                if not records:
                    offset = self.log.local_log_start_offset
            else:
                fetched = self.log.read(offset, 3_000)
                assert fetched.slice is not None
                records = fetched.slice.read()
            for batch in iter_batches(records):
                batch.ensure_valid()
                for record in batch.records():
                    if record.offset >= offset:
                        assert record.key is not None
                        assert record.value is not None
                        found[record.offset] = (record.key, record.value)
                offset = batch.last_offset + 1
        return found

    def expect_acknowledged(self) -> None:
        start = self.log.log_start_offset
        wanted = {offset: reported for offset, reported in self.acked.items() if offset >= start}
        found = self.serve()
        if not self.is_compacted:
            assert found == wanted, _difference(found, wanted)
            return
        assert found.items() <= wanted.items(), _difference(found, wanted)
        newest = {key: offset for offset, (key, _) in sorted(wanted.items())}
        missing = set(newest.values()) - found.keys()
        assert not missing, f"the newest of their keys are gone: {sorted(missing)}"


def _difference(found: dict[int, Any], wanted: dict[int, Any]) -> str:
    lost, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = [offset for offset in found.keys() & wanted.keys() if found[offset] != wanted[offset]]
    return f"lost {lost[:5]} ({len(lost)}), too much {more[:5]} ({len(more)}), other {other[:5]} ({len(other)})"


@dataclass
class Tally:
    """What has happened in how many lives."""

    lives: int = 0
    steps: int = 0
    kills: int = 0
    refusals: int = 0
    takeovers: int = 0
    copies: int = 0
    bulk_writes: int = 0
    compactions: int = 0


@dataclass
class BucketLife:
    """One life of a bucket, by seed; `run` does some steps and checks after each."""

    seed: int
    root: Path
    tally: Tally
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.clock = ManualClock()
        self.url = f"memory://bucket-life-{self.seed}"
        self.store = ObjectStore.from_url(self.url)
        self.numbers = iter(range(1, 10_000_000))
        self.nodes: list[Node] = []
        #: Of bulk writes: rows that were reported, and rows that may be there or not.
        self.rows: list[list[str]] = []
        self.doubtful: list[list[str]] = []
        self.sink_store: ObjectStore = self.store
        self.holder: Node | None = None
        self.ever: dict[int, set[tuple[bytes, bytes]]] = {}
        self.add("production", "production")

    def add(self, name: str, cluster: str, path: Path | None = None, **first: Any) -> Node:
        node = Node(name, cluster, path or self.root / name, self.store, self.clock, **first)
        self.nodes.append(node)
        return node

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    # --- what may happen ----------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        happenings = [
            *[self.produce] * 4,
            *[self.tier] * 5,
            *[self.killed_tier] * 5,
            *[self.drop_local] * 2,
            self.restart,
            self.expire,
            *[self.lose_tail] * 2,
            *[self.days_go_by] * 2,
            self.copy_directory,
            *[self.restore] * 2,
            self.operator,
            *[self.bulk_write] * 3,
            *[self.compact] * 2,
            self.delete_partition_of_copy,
        ]
        if self.random.random() < 0.5:
            self.step(self.bulk_write)
        for _ in range(steps):
            self.step(self.random.choice(happenings))

    def step(self, happening: Callable[[], object]) -> None:
        self.story.append(happening.__name__)
        self.tally.steps += 1
        happening()
        self.check()

    def any(self) -> Node:
        return self.random.choice(self.nodes)

    def produce(self) -> None:
        node = self.any()
        node.produce(self.random.randint(1, 40), lambda: next(self.numbers))

    def tier(self, node: Node | None = None) -> None:
        node = node or self.any()
        with self.nothing_changes_unless_owner(node), self.refused():
            node.tier()

    def killed_tier(self) -> None:
        node = self.any()
        node.produce(self.random.randint(5, 25), lambda: next(self.numbers))
        with self.nothing_changes_unless_owner(node):
            self.killed(node.faults, node.tier, 60)
            node.kill()

    def killed(self, faults: FaultPlan, work: Callable[[], object], steps_max: int) -> bool:
        """Do it with a fault at some step; whether it came to its end."""
        faults.at(self.random.randint(1, steps_max), self.random.choice(FAULTS))
        try:
            work()
        except (SimulatedCrash, RetriableRemoteStorageError):
            self.tally.kills += 1
            return False
        except NotOwnerError:
            self.tally.refusals += 1
            return False
        finally:
            faults.heal()
        return True

    def days_go_by(self) -> None:
        """Records come, are copied, and local retention takes what it may."""
        node = self.any()
        for _ in range(2):
            node.produce(20, lambda: next(self.numbers))
            self.tier(node)
            node.drop_local()
            node.restart()

    def drop_local(self) -> None:
        self.any().drop_local()

    def restart(self) -> None:
        self.any().restart()

    def expire(self) -> None:
        node = self.any()
        with self.nothing_changes_unless_owner(node), self.refused():
            node.configure(retention_bytes=self.random.choice([8_000, 20_000]))
            node.tier()
        node.checkpoint()
        node.configure(retention_bytes=-1)

    def lose_tail(self) -> None:
        node = self.any()
        low = max(node.log.local_log_start_offset, node.log.log_start_offset)
        bases = sorted(offset for offset in node.acked if offset >= low and offset % RECORDS_IN_BATCH == 0)
        if bases and not node.is_compacted:
            node.lose_tail(self.random.choice(bases[-30:]))

    def copy_directory(self) -> None:
        """A snapshot of a disk, put back on another machine while the first one goes on."""
        node = self.any()
        if len(self.nodes) > 3 or node.is_compacted:
            return
        self.tally.copies += 1
        node.checkpoint()
        path = self.root / f"copy-{next(self.numbers)}"
        path.mkdir()
        shutil.copytree(node.path / "t-0", path / "t-0")
        if (node.path / OWNERSHIP_FILE).exists():
            shutil.copy(node.path / OWNERSHIP_FILE, path)
        copied = self.add(
            f"{node.name}'",
            node.cluster,
            path,
            leader_epoch=node.leader_epoch + 1,
            log_start_offset=node.log.log_start_offset,
            events=[list(values) for values in node.metadata_log.values],
        )
        copied.acked = dict(node.acked)

    def restore(self) -> None:
        """From the bucket alone, taking it over or not."""
        if len(self.nodes) > 3 or not list_remote_segments(self.store, ["t"] if self.has_topic() else []):
            return
        if any(node.is_compacted for node in self.nodes):
            return
        self.tally.copies += 1
        takes_over = self.random.random() < 0.4
        name = f"restored-{next(self.numbers)}"
        path = self.root / name
        path.mkdir()
        if takes_over:
            self.tally.takeovers += 1
            take_over(self.store, name, reason="taken over by a restore")
        plan = plan_restore(self.store, ["t"])
        if not plan.partitions:
            return
        (of_partition,) = plan.partitions
        write_partition(path, of_partition, clock=self.clock, fs=UnsyncedFileSystem())
        OwnershipFile(path).set_read_only(not takes_over)
        events: list[list[bytes]] = [[], [], []]
        events[metadata_partition(of_partition.partition, len(events))] = list(_events(plan.segments))
        node = self.add(
            name,
            name,
            path,
            leader_epoch=of_partition.epochs[-1].epoch + 1,
            log_start_offset=of_partition.log_start_offset,
            events=events,
        )
        assert all("never finished" in problem for problem in plan.problems), plan.problems
        found = node.serve()
        assert sorted(found) == list(range(node.log.log_start_offset, node.log.log_end_offset))
        for offset, reported in found.items():
            assert reported in self.ever[offset], f"{offset} was never given to {reported}"
        node.acked, node.is_fresh = found, takes_over

    def has_topic(self) -> bool:
        return any(name.startswith("t-") for name in self.store.list_level("").directories)

    def operator(self) -> None:
        """Somebody decides whose the bucket is."""
        self.tally.takeovers += 1
        if self.random.random() < 0.2:
            give_up(self.store)
            return
        node = self.any()
        take_over(self.store, node.cluster, node_id=1)
        OwnershipFile(node.path).set_read_only(False)
        node.restart()

    def delete_partition_of_copy(self) -> None:
        """Somebody deletes the topic on a broker that does not own the bucket."""
        others = [node for node in self.nodes if not self.owns(node)]
        if not others or len(self.nodes) < 2:
            return
        node = self.random.choice(others)
        with self.nothing_changes_unless_owner(node):
            deletions = node.manager._deletions
            deletions._publish(node.partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
            with self.refused():
                deletions._delete(node.partition)
        if self.owns(node):  # a bucket that was given up: it took it, and what it deleted others still name
            for each in self.nodes:
                each.is_stale = True
        self.nodes.remove(node)
        node.close()

    def bulk_write(self) -> None:
        faults = FaultPlan()
        self.sink_store = FaultyObjectStore(self.store, faults)
        rows = [f"{next(self.numbers)}" for _ in range(self.random.randint(1, 60))]
        half = len(rows) // 2
        batches = [part for part in (rows[:half], rows[half:]) if part]

        def work() -> None:
            options = SinkOptions.parse(
                {"remote": self.url, "topic": "bulk", "segmentBytes": "700", "batchBytes": "200"}
            )
            writer = BulkWriter(options, SCHEMA, overwrite=False)
            writer.commit([writer.write(iter([_table(part)])) for part in batches])

        self.tally.bulk_writes += 1
        owner = read_owner(self.store)
        is_owned = owner is not None and owner.cluster_id is not None
        before = self.segments()
        if self.random.random() < 0.4:
            is_done = self.killed(faults, work, 80)
        else:
            try:
                work()
                is_done = True
            except NotOwnerError:
                self.tally.refusals += 1
                is_done = False
                assert is_owned, "a bucket without an owner is for bulk jobs"
        self.sink_store = self.store
        if is_owned:
            assert not is_done
            assert self.segments() == before
        (self.rows if is_done else self.doubtful).append(rows)

    def compact(self) -> None:
        """By a job that knows a cluster's brokers, or none."""
        if not self.has_topic():
            return
        node = self.any() if self.random.random() < 0.7 else None
        if node is not None and self.owner_cluster() == node.cluster and not self.is_owner(node):
            return  # two copies of one directory run, and nothing tells a job which of them it talks to
        faults = FaultPlan()
        store = FaultyObjectStore(self.store, faults)
        may = node is not None and self.owner_cluster() == node.cluster
        before = self.segments()

        def work() -> None:
            manifests = list_remote_segments(store, ["t"], covered=True)
            if not manifests:
                return
            job = BucketJob(store, ["t"], job_above(each.segment_id for each in manifests))
            target: Destination = InBucket(store, job, self.clock)
            if node is not None:
                assert isinstance(node.metadata_log, EventLog)
                log = node.log
                cluster = TieredCluster(
                    node.metadata_log,
                    self.clock,
                    cluster_id=node.cluster,
                    epoch_end=lambda _, epoch: log.leader_epochs.end_offset_for(epoch, log.log_end_offset)[1],
                )
                target = InCluster(store, job, cluster, self.clock)
            target.ensure_allowed(manifests)
            finish_publications(store, clock=self.clock)
            target.begin(manifests)
            for of_partition in bucket.partitions_of(manifests):
                readable = target.readable(of_partition)
                if not readable:
                    continue
                plan = bucket.bucket_plan(
                    ByteSources(self.url),
                    readable,
                    bucket.config_of(readable, COMPACTED),
                    first_dirty_offset=0,
                    now_ms=self.clock.now_ms() + 1,
                    job=job.id,
                )
                if node is not None:
                    node.is_compacted = True
                if not may:  # of a bucket that was given up: no other metadata knows of it
                    for each in self.nodes:
                        each.is_compacted = True
                        each.is_stale |= each is not node
                (made,) = compact_in_process([plan.plan])
                target.replace(plan, bucket.new_manifests(made))
            target.clean_up(0)

        self.tally.compactions += 1
        is_done = self.killed(faults, work, 120)
        if not may and self.owner_cluster() is not None:
            assert self.segments() == before
        if may and not is_done:
            self.killed_compaction_is_finished(work)

    def killed_compaction_is_finished(self, work: Callable[[], None]) -> None:
        """The next run does the rest."""
        with suppress(StratalogError):
            work()

    # --- whose it is --------------------------------------------------------------------------------------------------

    def owner_cluster(self) -> str | None:
        owner = read_owner(self.store)
        return None if owner is None else owner.cluster_id

    def owns(self, node: Node) -> bool:
        """Whether its next look would be good."""
        return self.owner_cluster() == node.cluster

    def segments(self) -> dict[str, str | None]:
        """Every object that is of a segment with a manifest, and every manifest."""
        infos = {info.key: info.etag for info in self.store.list() if not info.key.startswith((DIRECTORY, "_pub"))}
        complete = {
            key.segment_id
            for name in infos
            if (key := ObjectKey.parse(name)) is not None and key.kind is ObjectKind.MANIFEST
        }
        return {
            name: etag
            for name, etag in infos.items()
            if (key := ObjectKey.parse(name)) is not None and key.segment_id in complete
        }

    @contextmanager
    def refused(self) -> Iterator[None]:
        try:
            yield
        except NotOwnerError:
            self.tally.refusals += 1

    @contextmanager
    def nothing_changes_unless_owner(self, node: Node) -> Iterator[None]:
        """Who is another cluster's when it begins changes nothing that is complete."""
        before, owner = self.segments(), self.owner_cluster()
        yield
        if owner is not None and owner != node.cluster:
            assert self.segments() == before, f"{node.name} changed a bucket of {owner}"

    # --- the model ----------------------------------------------------------------------------------------------------

    def remember(self) -> None:
        """All that any node was ever sent, by offset."""
        for node in self.nodes:
            for offset, reported in node.acked.items():
                self.ever.setdefault(offset, set()).add(reported)

    def is_owner(self, node: Node) -> bool:
        """Whether the newest generation names the process of this node."""
        owner, own = read_owner(self.store), node.rsm._ownership
        if owner is None or owner.cluster_id != node.cluster or not isinstance(own, BrokerOwnership):
            return False
        return own._life == owner.brokers.get(1)

    def check(self) -> None:
        self.remember()
        for node in self.nodes:
            if self.is_owner(node) and node is not self.holder:
                # What the holder before has deleted its metadata name: an older directory wants `tier restore
                # --metadata-only`, and until then it is served as far as it goes.
                node.is_stale |= self.holder is not None and not node.is_fresh
                self.holder = node
                for other in self.nodes:
                    other.is_fresh = False
            if self.is_owner(node) and not node.is_stale:
                node.tier()  # after a crash the first turn finds out where the log begins
                node.expect_acknowledged()

    def check_bulk(self) -> None:
        found: list[str] = []
        end = 0
        for manifest in list_remote_segments(self.store, ["bulk"]):
            assert manifest.base_offset == end
            end = manifest.end_offset + 1
            decoded = decode_columns(bytes(self.store.get(manifest.key())), columns=["value"])
            found += [value.decode() for value in decoded.column("value").to_pylist()]
        assert end == len(found)
        assert len(set(found)) == len(found), "a row twice"
        there = set(found)
        for rows in self.rows:
            assert there.issuperset(rows), "rows that were reported are gone"
        for rows in self.doubtful:
            assert there.issuperset(rows) or there.isdisjoint(rows), "a part of a write"
        assert there <= {row for rows in (*self.rows, *self.doubtful) for row in rows}


def _table(values: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": values, "partition": pa.array([0] * len(values), pa.int32())})


def open_sink(life: BucketLife) -> Callable[[BucketTarget], ObjectStore]:
    """What opens the store of a bulk job in a life."""
    return lambda _: life.sink_store
