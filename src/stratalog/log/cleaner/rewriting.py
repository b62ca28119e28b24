"""Filter segments, one after the other, into one new segment.

Source: Kafka's `Cleaner.cleanInto` and `MemoryRecords.filterTo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratalog.log.cleaner import context as at, filter_kernel
from stratalog.log.cleaner.chunk import Chunk, RecordsFile, address_of
from stratalog.log.cleaner.cleaned_output import CleanedOutput
from stratalog.log.cleaner.filter_plain import FilteredBatch, FilterRules, empty_batch, filter_batch
from stratalog.log.cleaner.throttle import Throttle
from stratalog.log.cleaner.transactions import CleanedTransactions
from stratalog.log.cleaner.values import CleanerStats, LastRecord
from stratalog.log.cleaner.verdict import BatchVerdict, judge
from stratalog.log.segment import LogSegment
from stratalog.records import Codec, RecordBatch, batch_format as fmt, compress
from stratalog.util import crc32c


@dataclass(frozen=True, slots=True)
class RewritingFacts:
    rules: FilterRules
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    high_watermark: int


class SegmentRewriter:
    """Filters segments into `cleaned`, through buffers of its own. After an error it must not be used again."""

    def __init__(
        self,
        cleaned: LogSegment,
        buffer_bytes: int,
        throttle: Throttle,
        stats: CleanerStats,
        check_abort: Callable[[], None],
    ) -> None:
        self._chunk = Chunk(buffer_bytes)
        self._output = CleanedOutput(buffer_bytes, self._chunk, cleaned)
        self._throttle = throttle
        self._stats = stats
        self._check_abort = check_abort
        #: The retained records of a compressed batch, before they are compressed again.
        self._records: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def rewrite(self, source: RecordsFile, facts: RewritingFacts) -> None:
        """Append the retained records of `source`. Raises CorruptRecordError and the errors of `check_abort`."""
        self._facts = facts
        chunk, position = self._chunk, 0
        self._prepare()
        try:
            while position < source.size_bytes:
                self._check_abort()
                self._throttle.maybe_throttle(chunk.read(source, position))
                with chunk.errors_named():
                    self._filter_chunk()
                self._wrote(self._output.write())
                if chunk.position == 0:
                    chunk.grow_for_batch()
                position += chunk.position
                self._stats.bytes_read += chunk.position
        finally:
            self._collect_counts()
        chunk.restore()
        self._output.restore()

    def _prepare(self) -> None:
        context, rules = self._chunk.context, self._facts.rules
        context.map = rules.newer.address
        context.now_ms = rules.now_ms
        context.new_horizon_ms = rules.now_ms + rules.delete_retention_ms
        context.high_watermark = self._facts.high_watermark
        context.messages_read = context.messages_retained = context.invalid = 0

    def _collect_counts(self) -> None:
        context, stats = self._chunk.context, self._stats
        stats.messages_read += context.messages_read
        stats.messages_written += context.messages_retained
        stats.invalid_messages_read += context.invalid

    def _wrote(self, size: int) -> None:
        if size:
            self._stats.bytes_written += size
            self._throttle.maybe_throttle(size)

    def _filter_chunk(self) -> None:
        chunk = self._chunk
        while True:
            filter_kernel.filter_chunk(chunk.address)
            if chunk.status == at.DONE:
                return
            batch = chunk.batch()
            if chunk.status == at.OUT_FULL:
                self._make_room(batch)
                continue
            self._take(batch)
            chunk.advance(batch.size)

    def _make_room(self, batch: RecordBatch) -> None:
        count = max(batch.record_count, 0)
        if count > batch.size:
            raise ValueError(f"record count {count} in {batch!r}")
        size = batch.size + at.RECORD_GROWTH * count
        self._wrote(self._output.make_room(size, count))

    def _take(self, batch: RecordBatch) -> None:
        """Filter a batch that the loop over the chunk left to Python."""
        facts = self._facts
        verdict = judge(
            batch,
            facts.transactions,
            facts.last_records,
            high_watermark=facts.high_watermark,
            now_ms=facts.rules.now_ms,
        )
        if verdict.is_deletion:
            return
        if verdict.discard:
            self._chunk.context.messages_read += batch.record_count
            self._add(empty_batch(batch))
        elif batch.magic < fmt.MAGIC or not self._take_natively(batch, verdict):
            self._take_filtered(filter_batch(batch, verdict, facts.rules))

    def _take_filtered(self, filtered: FilteredBatch) -> None:
        context = self._chunk.context
        context.messages_read += filtered.read
        context.messages_retained += filtered.retained
        context.invalid += filtered.keyless
        if filtered.data is not None:
            self._wrote(self._output.add(filtered.data, RecordBatch(filtered.data)))

    def _take_natively(self, batch: RecordBatch, verdict: BatchVerdict) -> bool:
        """Filter one batch natively. Return False, without a change, for one that the plain twin must filter."""
        context, header = self._chunk.context, self._chunk.header_address()
        self._output.reserve_flags(batch.record_count)
        payload = np.frombuffer(batch.decompressed_payload(), np.uint8)
        status = filter_kernel.select(self._chunk.address, header, address_of(payload), len(payload), batch.is_control)
        if status != at.DONE:
            return False
        count, retained = context.count, context.retained
        needs_horizon = batch.delete_horizon_ms is None and bool(context.has_tombstones or verdict.is_marker_of_nothing)
        if not retained:
            if verdict.keep_empty:
                self._add(empty_batch(batch))
        elif retained == count and not needs_horizon:
            self._add(batch.as_memoryview())
        else:
            self._add(self._rewritten(batch, payload, needs_horizon))
        return True

    def _add(self, data: bytes | memoryview) -> None:
        self._wrote(self._output.add(data, RecordBatch(data)))

    def _rewritten(self, batch: RecordBatch, payload: npt.NDArray[np.uint8], needs_horizon: bool) -> bytes:
        """Return the batch with the selected records, compressed with the same codec."""
        context = self._chunk.context
        if needs_horizon:
            base_timestamp = context.new_horizon_ms
        elif batch.delete_horizon_ms is not None:
            base_timestamp = batch.delete_horizon_ms
        else:
            base_timestamp = context.first_timestamp
        count, retained = context.count, context.retained
        room = len(payload) + at.RECORD_GROWTH * count
        if len(self._records) < room:
            self._records = np.empty(room, np.uint8)
        size = filter_kernel.write_records(
            self._chunk.address,
            address_of(payload),
            len(payload),
            base_timestamp,
            address_of(self._records),
        )
        records = self._records.data[:size]
        body = records if batch.codec is Codec.NONE else compress(batch.codec, records)
        max_timestamp = context.max_timestamp
        return _with_body(batch, body, base_timestamp, max_timestamp, retained, needs_horizon)


def _with_body(
    batch: RecordBatch,
    body: bytes | memoryview,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    needs_horizon: bool,
) -> bytes:
    """Return the batch with other records, which are given as encoded after the header."""
    known_bits = (
        fmt.CODEC_MASK | fmt.LOG_APPEND_TIME_BIT | fmt.TRANSACTIONAL_BIT | fmt.CONTROL_BIT | fmt.DELETE_HORIZON_BIT
    )
    data = bytearray(
        fmt.HEADER.pack(
            batch.base_offset,
            fmt.LENGTH_MIN + len(body),
            batch.partition_leader_epoch,
            fmt.MAGIC,
            0,
            batch.attributes & known_bits | (fmt.DELETE_HORIZON_BIT if needs_horizon else 0),
            batch.last_offset_delta,
            base_timestamp,
            max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            count,
        )
    )
    data += body
    fmt.UINT32.pack_into(data, fmt.CRC_AT, crc32c(memoryview(data)[fmt.ATTRIBUTES_AT :]))
    return bytes(data)
