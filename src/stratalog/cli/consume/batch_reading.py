"""Reads records with what their batches hold: leader epoch, producer, and control records, which clients leave out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from stratalog.cli.consume.reading import TopicPartition
from stratalog.cli.missing import NothingFoundError
from stratalog.cli.threads import call_beside
from stratalog.errors import OffsetOutOfRangeError, UnknownTopicIdError, UnknownTopicOrPartitionError
from stratalog.records import Record, RecordBatch, iter_batches, parse_control_key
from stratalog.wire.client import EARLIEST_OFFSET, Cluster, FetchedRecords

_FETCH_BYTES: Final = 1 << 20
#: Wait for records of all partitions together, and of each at least, after none had any.
_WAIT_MS: Final = 200
_WAIT_MIN_MS: Final = 5


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A record as printed, with facts of its batch; -1 for unknown ones."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    #: "commit", "abort" and the like; empty for other records.
    control: str


class WholeBatchReader:
    """Reads each partition from its first offset to its last (exclusive); indefinitely if that is None."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        *,
        read_committed: bool,
        with_control: bool,
    ) -> None:
        self._cluster = cluster
        self._ranges = {key: each for key, each in ranges.items() if each[1] is None or each[0] < each[1]}
        self._read_committed = read_committed
        self._with_control = with_control

    async def read(self) -> AsyncGenerator[Sequence[BatchRecord], None]:
        """Yield records, partition by partition, until all ranges have been read.

        Raises NothingFoundError if a topic is deleted before that.
        """
        open_ = dict(self._ranges)
        wait_ms = 0
        while open_:
            has_found = False
            for key, (at, stop) in list(open_.items()):
                fetched = await call_beside(self._fetch, key, at, wait_ms)
                if isinstance(fetched, int):  # the log begins later
                    open_[key] = (fetched, stop)
                    continue
                next_offset, records = await call_beside(partial(self._records, key, fetched, at, stop))
                has_found = has_found or next_offset > at
                if records:
                    yield records
                open_[key] = (next_offset, stop)
                if stop is not None and next_offset >= stop:
                    del open_[key]
            wait_ms = 0 if has_found else max(_WAIT_MS // max(len(open_), 1), _WAIT_MIN_MS)

    async def done(self, records: Sequence[BatchRecord]) -> None:
        """Do nothing: there is no group."""

    def _fetch(self, key: TopicPartition, at: int, wait_ms: int) -> FetchedRecords | int:
        """Return the batches from an offset on, or the offset at which the log begins by now."""
        try:
            return self._cluster.fetch(*key, at, _FETCH_BYTES, read_committed=self._read_committed, max_wait_ms=wait_ms)
        except OffsetOutOfRangeError:
            return self._cluster.list_offsets({key: EARLIEST_OFFSET})[key].offset
        except (UnknownTopicOrPartitionError, UnknownTopicIdError):
            raise NothingFoundError(f"{self._cluster.any.address}: {key[0]} was deleted while it was read") from None

    def _records(
        self, key: TopicPartition, fetched: FetchedRecords, at: int, stop: int | None
    ) -> tuple[int, list[BatchRecord]]:
        """Return the offset after the last batch, and the records from `at` to `stop`."""
        next_offset = at
        found: list[BatchRecord] = []
        for batch in _visible(fetched):
            next_offset = max(next_offset, batch.next_offset)
            if batch.is_control and not self._with_control:
                continue
            batch.ensure_valid()
            found += [
                _printed(key, batch, record)
                for record in batch.records()
                if record.offset >= at and (stop is None or record.offset < stop)
            ]
        return next_offset, found


def _visible(fetched: FetchedRecords) -> Iterator[RecordBatch]:
    """Yield the whole batches but those of aborted transactions, of which there are none with read_uncommitted."""
    starts = sorted(fetched.aborted, key=lambda each: each.first_offset)
    aborting: set[int] = set()
    for batch in iter_batches(fetched.records):
        while starts and starts[0].first_offset <= batch.last_offset:
            aborting.add(starts.pop(0).producer_id)
        if batch.is_control:
            aborting.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborting:
            continue
        yield batch


def _printed(key: TopicPartition, batch: RecordBatch, record: Record) -> BatchRecord:
    topic, partition = key
    return BatchRecord(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        control=parse_control_key(record.key).name.lower() if batch.is_control else "",
    )
