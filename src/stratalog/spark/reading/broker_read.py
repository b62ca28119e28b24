"""Read offsets through a broker, on a worker. Fetches run ahead of decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from stratalog.errors import (
    InconsistentTopicIdError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from stratalog.log.index import AbortedTransaction
from stratalog.records import ControlType, RecordBatch, batch_format as fmt, parse_control_key
from stratalog.spark.model import Piece
from stratalog.spark.options import OnDataLoss
from stratalog.spark.planning import INT64_MAX
from stratalog.spark.reading.batch_table import BatchTable
from stratalog.spark.reading.blocks import Block
from stratalog.spark.reading.decode import PieceDecoder, Selection
from stratalog.spark.reading.prefetch import run_ahead
from stratalog.util import SYSTEM_CLOCK
from stratalog.wire.client import EARLIEST_OFFSET, AbortedRange, Cluster, FetchedRecords

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
FETCH_BYTES_MIN: Final = 64 * 1024

#: The first fetch, while the size of records is unknown.
_FETCH_BYTES_FIRST: Final = 1024 * 1024
_RECORD_BYTES_GUESS: Final = 1024
_FETCHES_AHEAD: Final = 2

_GONE: Final = (UnknownTopicIdError, UnknownTopicOrPartitionError, InconsistentTopicIdError)


class _Chunk(NamedTuple):
    """Whole batches, the first of which contains `offset`."""

    offset: int
    records: memoryview
    table: BatchTable
    aborted: tuple[AbortedTransaction, ...]


class Missing(NamedTuple):
    """Offsets [start, end) that the broker no longer has."""

    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class BrokerReader:
    """Reads pieces of one partition. `topic_id` is that of the topic when the query was planned."""

    cluster: Cluster
    topic: str
    partition: int
    topic_id: UUID | None
    read_committed: bool
    on_data_loss: OnDataLoss

    def read(self, piece: Piece, selection: Selection) -> Iterator[pa.RecordBatch | Missing]:
        """Yield the wanted records in order of their offsets, and missing ranges in their places.

        Raises what `on_data_loss` raises, UnreachableError, KafkaError.
        """
        low = 0
        for found in run_ahead(self._chunks(piece), _FETCHES_AHEAD):
            if isinstance(found, Missing):
                yield found
                continue
            part = replace(
                piece,
                start=found.offset,  # the batch may begin before it
                start_position=0,
                end_position=len(found.records),
                base_min=low,
                base_end=INT64_MAX,
            )
            source = f"{self.topic}-{self.partition} through the broker from offset {found.offset}"
            decoder = PieceDecoder(part, source, replace(selection, aborted=found.aborted), self.on_data_loss)
            yield from decoder.decode(iter([Block(0, found.records)]))
            low = int(found.table["last_offset"][-1]) + 1

    def _chunks(self, piece: Piece) -> Iterator[_Chunk | Missing]:
        """Fetch up to the end of the piece, and yield the results."""
        at = piece.start
        guess = min((piece.end - at) * _RECORD_BYTES_GUESS, _FETCH_BYTES_FIRST)
        wanted = min(piece.size or guess, FETCH_BYTES_MAX)
        while at < piece.end:
            fetched = self._fetch(at, piece.end, max(wanted, FETCH_BYTES_MIN))
            if isinstance(fetched, Missing):
                yield fetched
                at = fetched.end
                continue
            table = BatchTable.scan(fetched.records)
            if not len(table) and not table.bad:  # less than one batch: ask for all of it
                wanted = 2 * max(wanted, len(fetched.records))
                continue
            if not len(table):
                self.on_data_loss(
                    f"{self.topic}-{self.partition}: the broker's data at offset {at} is not a batch; "
                    f"offsets up to {piece.end - 1} cannot be read",
                    piece.end - at,
                    len(fetched.records),
                )
                return
            records = fetched.records[: table.end]
            aborted = aborted_ranges(records, table, fetched.aborted) if fetched.aborted else ()
            yield _Chunk(at, records, table, aborted)
            reached = int(table["last_offset"].max()) + 1
            # Estimate the rest from the size so far, with a margin so that one fetch is enough.
            left = piece.end - reached
            wanted = left * table.end // max(reached - at, 1) * 9 // 8 + FETCH_BYTES_MIN
            wanted = min(wanted, FETCH_BYTES_MAX)
            at = max(reached, at + 1)

    def _fetch(self, at: int, end: int, max_bytes: int) -> FetchedRecords | Missing:
        """Return the records from `at` on, or the range missing there."""
        deadline = SYSTEM_CLOCK.monotonic() + self.cluster.options.request_timeout_s
        try:
            while True:
                found = self.cluster.fetch(
                    self.topic,
                    self.partition,
                    at,
                    max_bytes,
                    read_committed=self.read_committed,
                    topic_id=self.topic_id,
                )
                if len(found.records):
                    return found
                # a new leader may lag for a moment
                if SYSTEM_CLOCK.monotonic() >= deadline:
                    return Missing(at, end, f"the log ends at {found.high_watermark}")
        except OffsetOutOfRangeError:
            return self._out_of_range(at, end)
        except _GONE as error:
            return Missing(at, end, f"the topic is gone since the query was planned ({error})")

    def _out_of_range(self, at: int, end: int) -> Missing:
        key = self.topic, self.partition
        try:
            log_start = self.cluster.list_offsets({key: EARLIEST_OFFSET})[key].offset
        except KafkaError as error:
            return Missing(at, end, str(error))
        if log_start > at:
            return Missing(at, min(log_start, end), f"the log begins at {log_start} by now")
        return Missing(at, end, "the log now ends before that offset")


def aborted_ranges(
    records: memoryview, table: BatchTable, aborted: tuple[AbortedRange, ...]
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions of fetched batches: from a producer's first offset to its next abort marker."""
    last = int(table["last_offset"].max())
    producers = {each.producer_id for each in aborted}
    markers: dict[int, list[int]] = {}
    control = table["attributes"] & fmt.CONTROL_BIT != 0
    for index in np.flatnonzero(control).tolist():
        producer = int(table["producer_id"][index])
        position, size = int(table["position"][index]), int(table["size"][index])
        if producer in producers and _is_abort(records[position : position + size]):
            markers.setdefault(producer, []).append(int(table["last_offset"][index]))
    return tuple(
        AbortedTransaction(
            each.producer_id,
            each.first_offset,
            next((at for at in markers.get(each.producer_id, []) if at >= each.first_offset), last),
            0,
        )
        for each in aborted
    )


def _is_abort(data: memoryview) -> bool:
    batch = RecordBatch(data)
    batch.ensure_valid()
    return any(parse_control_key(record.key) is ControlType.ABORT for record in batch.records())
