"""Partition directories and buckets for tests: plain files around batches of `build_batch`, and reading without
Spark."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter

from stratalog.inspect.byte_sources import ByteSources
from stratalog.log.format import producer_snapshot
from stratalog.log.format.checkpoints import encode_partition_metadata
from stratalog.log.format.offset_index_format import LEGACY, OffsetIndexFormat
from stratalog.log.format.producer_snapshot import ProducerSnapshotEntry
from stratalog.log.index.txn_index import AbortedTransaction, encode_entry
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.transactions.staging import BULK_BROKER_ID
from stratalog.spark.model.split_plan import SplitPlan
from stratalog.spark.options.data_loss import on_data_loss
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.planning.filters import Constraints, push
from stratalog.spark.planning.intervals import EVERYTHING
from stratalog.spark.planning.planner import Planner
from stratalog.spark.reading.decode import Selection
from stratalog.spark.reading.rows import RowMaker, decoded_columns, spark_schema
from stratalog.spark.reading.split_reader import SplitReader

#: A day in 2023, in milliseconds.
T0 = 1_700_000_000_000


@dataclass
class Batch:
    """A batch to be written: timestamps of its records, and what else it is."""

    timestamps: Sequence[int]
    codec: Codec = Codec.NONE
    producer_id: int = -1
    transactional: bool = False
    marker: ControlType | None = None
    value_size: int = 20
    log_append_time_ms: int | None = None
    #: Offsets that are left out, as compaction does (relative to the batch).
    holes: frozenset[int] = frozenset()


def record(offset: int, timestamp_ms: int, value_size: int = 20) -> Record:
    """A record whose content follows from its offset; null keys and values and headers come and go."""
    key = None if offset % 5 == 0 else b"key-%d" % offset
    value = None if offset % 7 == 0 else (b"value-%d." % offset * value_size)[: max(value_size, 1)]
    headers = (("source", b"%d" % offset), ("none", None)) if offset % 3 == 0 else ()
    return Record(offset, timestamp_ms, key, value, headers)


@dataclass
class Partition:
    """A partition that is written segment by segment; remembers every record it has."""

    root: Path
    topic: str = "orders"
    number: int = 0
    index_interval: int = 256
    index_format: OffsetIndexFormat = LEGACY
    #: What manifests note of the topic.
    topic_config: dict[str, str] | None = None
    next_offset: int = 0
    records: list[Record] = field(default_factory=list)
    #: offset -> producer id, of transactional records
    transactional: dict[int, int] = field(default_factory=dict)
    append_times: dict[int, int] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    #: (base offset, last offset, bytes) of every batch
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    _open: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "partition.metadata").write_bytes(encode_partition_metadata(self.topic_id))

    @property
    def topic_id(self) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_DNS, self.topic)

    @property
    def directory(self) -> Path:
        return self.root / f"{self.topic}-{self.number}"

    @property
    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def file(self, base: int, suffix: str) -> Path:
        return self.directory / f"{base:020d}.{suffix}"

    def segment(self, batches: Iterable[Batch], *, index: bool = True) -> int:
        """Write one segment with its indexes; returns its base offset."""
        base = self.next_offset
        self._write_snapshot(base)
        log, offsets, times, aborted = bytearray(), bytearray(), bytearray(), bytearray()
        newest, newest_offset, written_newest, since_entry = -1, base, -1, 0
        for batch in batches:
            data, max_timestamp, last = self._build(batch, aborted)
            if max_timestamp > newest:
                newest, newest_offset = max_timestamp, last
            if since_entry > self.index_interval:
                offsets += self.index_format.entry.pack(last - base, len(log))
                if newest > written_newest:
                    times += struct.pack(">qi", newest, newest_offset - base)
                    written_newest = newest
                since_entry = 0
            since_entry += len(data)
            log += data
        if newest > written_newest:
            times += struct.pack(">qi", newest, newest_offset - base)
        self.file(base, "log").write_bytes(log)
        if index:
            self.file(base, "index").write_bytes(offsets)
            self.file(base, "timeindex").write_bytes(times)
        if aborted:
            self.file(base, "txnindex").write_bytes(aborted)
        self.bases.append(base)
        return base

    def _build(self, batch: Batch, aborted: bytearray) -> tuple[bytes, int, int]:
        base = self.next_offset
        if batch.marker is not None:
            timestamp = batch.timestamps[0]
            data = end_transaction_marker(
                batch.marker,
                base_offset=base,
                timestamp_ms=timestamp,
                producer_id=batch.producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
            )
            first = self._open.pop(batch.producer_id, None)
            self.next_offset += 1
            if batch.marker is ControlType.ABORT and first is not None:
                stable = min([self.next_offset, *self._open.values()])
                self.aborted.append(AbortedTransaction(batch.producer_id, first, base, stable))
                aborted += encode_entry(self.aborted[-1])
            self.batches.append((base, base, data))
            return data, timestamp, base
        kept = [
            record(base + i, timestamp, batch.value_size)
            for i, timestamp in enumerate(batch.timestamps)
            if i not in batch.holes
        ]
        last = base + len(batch.timestamps) - 1
        data = build_batch(
            kept,
            base_offset=base,
            last_offset_delta=last - base,
            codec=batch.codec,
            producer_id=batch.producer_id,
            producer_epoch=0 if batch.producer_id >= 0 else -1,
            base_sequence=0 if batch.producer_id >= 0 else -1,
            is_transactional=batch.transactional,
            log_append_time_ms=batch.log_append_time_ms,
            partition_leader_epoch=0,
        )
        self.records += kept
        if batch.transactional:
            self._open.setdefault(batch.producer_id, base)
            self.transactional.update({each.offset: batch.producer_id for each in kept})
        if batch.log_append_time_ms is not None:
            self.append_times.update({each.offset: batch.log_append_time_ms for each in kept})
        self.next_offset = last + 1
        newest = batch.log_append_time_ms or max(each.timestamp_ms for each in kept)
        self.batches.append((base, last, data))
        return data, newest, last

    @property
    def last_stable_offset(self) -> int:
        return min([self.next_offset, *self._open.values()])

    def _write_snapshot(self, offset: int) -> None:
        entries = [ProducerSnapshotEntry(pid, 0, 0, first, 0, T0, 0, first) for pid, first in self._open.items()]
        producer_snapshot.write(self.file(offset, "snapshot"), entries)

    def timestamp_of(self, each: Record) -> int:
        return self.append_times.get(each.offset, each.timestamp_ms)

    def upload(self, url: str, base: int, *, epoch: int = 0) -> RemoteLogSegmentMetadata:
        """Copy a segment to the remote tier as the engine does."""
        return self.upload_to(ObjectStore.from_url(url), base, epoch=epoch)

    def upload_to(
        self, store: ObjectStore, base: int, *, epoch: int = 0, encoding: Encoding | None = None
    ) -> RemoteLogSegmentMetadata:
        """The same, to a store that is open."""
        following = min([other for other in self.bases if other > base], default=self.next_offset)
        if not self.file(following, "snapshot").exists():
            self._write_snapshot(following)
        log, txn_index = self.file(base, "log"), self.file(base, "txnindex")
        newest = max((self.timestamp_of(each) for each in self.records if base <= each.offset < following), default=T0)
        metadata = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId.generate_new(TopicIdPartition(self.topic_id, self.topic, self.number)),
            start_offset=base,
            end_offset=following - 1,
            max_timestamp_ms=newest,
            broker_id=BULK_BROKER_ID,  # no cluster is behind it
            event_timestamp_ms=T0,
            segment_size_bytes=log.stat().st_size,
            segment_leader_epochs={epoch: base},
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=not txn_index.exists(),
        )
        manager = ObjectStoreRemoteStorageManager(store, encoding=encoding)
        manager.copy_log_segment_data(
            metadata,
            LogSegmentData(
                log,
                self.file(base, "index"),
                self.file(base, "timeindex"),
                txn_index if txn_index.exists() else None,
                self.file(following, "snapshot"),
                b"0\n1\n0 0\n",
                topic_config=self.topic_config,
            ),
        )
        return metadata

    def drop_local(self, base: int) -> None:
        """Delete a segment locally, as local retention does."""
        for path in self.directory.glob(f"{base:020d}.*"):
            path.unlink()


def steady(count: int, per_batch: int = 5, start: int = T0, step_ms: int = 1000, **kind: Any) -> list[Batch]:
    """Batches of records that are `step_ms` apart."""
    return [Batch([start + (i * per_batch + k) * step_ms for k in range(per_batch)], **kind) for i in range(count)]


@dataclass
class Scan:
    """What a query gave, and at what cost."""

    plans: list[SplitPlan]
    rows_by_plan: list[list[dict[str, Any]]]
    planning_bytes: int
    bytes_read: int
    rest: list[Filter]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for rows in self.rows_by_plan for row in rows]

    @property
    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.rows]


def scan(filters: Sequence[Filter] = (), /, **options: Any) -> Scan:
    """Plan and read as Spark would, in this process."""
    parsed = ReadOptions.parse({name.replace("__", "."): str(value) for name, value in options.items()})
    constraints, rest = push(filters, Constraints())
    places = ByteSources.of(parsed)
    try:
        plans = Planner(parsed, constraints, places).plan()
    finally:
        places.close()
    planning_bytes, places.bytes_read = places.bytes_read, 0
    schema = spark_schema(parsed.columns)
    times = constraints.timestamps_ms
    selection = Selection(decoded_columns(parsed.columns, with_timestamp=times != EVERYTHING), times)
    lost = on_data_loss(parsed.fail_on_data_loss)
    reader = SplitReader(places, lost, parsed.read_committed)
    rows_by_plan = []
    for plan in plans:
        maker = RowMaker(schema, plan.topic, plan.partition)
        decoded = reader.read(plan, selection)
        rows_by_plan.append([row for batch in decoded for row in maker.rows(batch).to_pylist()])
    places.close()
    lost.close("the scan")
    return Scan(plans, rows_by_plan, planning_bytes, places.bytes_read, rest)


def expected_row(partition: Partition, each: Record) -> dict[str, Any]:
    """A record of `partition` as a row of the source with headers."""
    append_time = partition.append_times.get(each.offset)
    timestamp_ms = each.timestamp_ms if append_time is None else append_time
    return {
        "key": each.key,
        "value": each.value,
        "topic": partition.topic,
        "partition": partition.number,
        "offset": each.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms),
        "timestampType": 0 if append_time is None else 1,
        "headers": [{"key": key, "value": value} for key, value in each.headers] or None,
    }


#: The topic id of `PartitionOfAnotherCluster`.
OTHER = uuid.UUID("0123456789abcdef0123456789abcdef")


class PartitionOfAnotherCluster(Partition):
    """One of a topic of the same name."""

    @property
    def topic_id(self) -> uuid.UUID:
        return OTHER


def bucket_of_two_clusters(directory: Path) -> str:
    """The URL of a bucket with the topic "orders" of two clusters: 20 records of one, 35 of the other."""
    url = f"file://{directory}/bucket"
    first = Partition(directory / "first")
    first.upload(url, first.segment(steady(4)))
    second = PartitionOfAnotherCluster(directory / "second")
    second.upload(url, second.segment(steady(7)))
    return url


def example_names(directory: Path) -> dict[str, Any]:
    """Make the data of the examples in the pages about jobs; return the names that the examples use."""
    partition = Partition(directory / "data")
    for _ in range(2):
        partition.segment(steady(10))
    (partition.directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    bucket = (directory / "bucket").as_uri()
    for base in partition.bases:
        partition.upload(bucket, base)
    return {
        "data_dir": str(directory / "data"),
        "bucket_url": bucket,
        "state_dir": str(directory / "state"),
        "new_dir": str(directory / "new"),
    }
