"""Decode the bytes of a piece to Arrow record batches in the columns of `stratalog.records.columns`.

A block is cut into whole batches; a batch that straddles two blocks is assembled. A batch that its header rules out
(aborted, timestamps) is not decoded. Neither is a compressed batch whose records are only counted. A batch that fails
its CRC or has impossible offsets is never served. It is reported with file and position, and left out if `on_data_loss`
returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from stratalog.errors import KafkaError, RecordListTooLargeError
from stratalog.log.index import AbortedTransaction
from stratalog.records import (
    batch_at,
    batch_format as fmt,
    checked_batch_size,
    decode_columns,
    decode_rows,
    rows_without_columns,
)
from stratalog.spark.model import Piece
from stratalog.spark.options import OnDataLoss
from stratalog.spark.planning import Intervals
from stratalog.spark.reading.batch_table import UNKNOWN, BatchTable
from stratalog.spark.reading.blocks import Block

#: Bytes that one Arrow batch should hold. Decompressed sizes are estimated from the batches before.
OUTPUT_BYTES: Final = 8 * 1024 * 1024

#: Assumed expansion of a batch whose codec has not been seen yet: such a batch is decoded on its own.
_RATIO_UNKNOWN: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records and columns of a split are wanted, besides the offsets.

    `columns` are those of `decode_columns`, with `timestamp` if times are restricted.
    """

    columns: tuple[str, ...]
    timestamps_ms: Intervals
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(slots=True)
class PieceDecoder:
    """Decodes the blocks of one piece; `source` names its file or object. One use, one thread."""

    piece: Piece
    source: str
    selection: Selection
    on_data_loss: OnDataLoss
    _ratio: float = _RATIO_UNKNOWN
    _compressed: int = 0
    _decompressed: int = 0
    _base_min: int = field(init=False)

    def __post_init__(self) -> None:
        self._base_min = self.piece.base_min

    @property
    def reached(self) -> int:
        """The first offset that is not decoded yet."""
        return max(self._base_min, self.piece.start)

    def decode(self, blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of the blocks, in order.

        Raises what `on_data_loss` raises, OSError, RemoteStorageError.
        """
        carry = bytearray()  # the beginning of a batch that the blocks so far did not hold whole
        reached = self.piece.start_position
        for position, data in blocks:
            view = memoryview(data)
            reached = position + len(view)
            at = 0
            if carry:
                carry_position = position - len(carry)
                try:
                    at = _complete(carry, view)
                except KafkaError as error:
                    self._report_rest(carry_position, error)
                    return
                if at < 0:
                    continue
                next_base = self._base_at(view[at:])
                yield from self._decode_whole(carry_position, memoryview(carry), BatchTable.scan(carry), next_base)
            table = BatchTable.scan(view[at:])
            rest = view[at + table.end :]
            yield from self._decode_whole(position + at, view[at:], table, self._base_at(rest))
            if table.bad:
                self._report_header(position + at + table.end, rest)
                return
            carry = bytearray(rest)
        if carry or reached < self.piece.end_position:
            first = max(self._base_min, self.piece.start)
            self.on_data_loss(
                f"{self.source}: no whole batch at position {reached - len(carry)}; expected batches up to position "
                f"{self.piece.end_position}; offsets {first} to {self.piece.end - 1}",
                self._wanted_of(first, self.piece.end),
                self.piece.end_position - reached + len(carry),
            )

    def _base_at(self, view: memoryview) -> int:
        """Return the base offset of the batch that begins in `view`, or the end of the piece."""
        return min(fmt.INT64.unpack_from(view)[0], self.piece.base_end) if len(view) >= 8 else self.piece.base_end

    def _decode_whole(
        self, position: int, view: memoryview, table: BatchTable, next_base: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode whole batches, the first at `position` of the source; a batch with `next_base` follows."""
        if len(table) == 0:
            return
        wanted = self._in_place(position, table, next_base)
        ruled_out = wanted & self._ruled_out(table)
        for index in np.flatnonzero(ruled_out).tolist():
            self._verify(position, view, table, index)
        wanted &= ~ruled_out & (table["attributes"] & fmt.CONTROL_BIT == 0) & (table["base_offset"] < self.piece.end)
        counted = wanted & self._counted(table)
        if counted.any():
            yield from self._count(position, view, table, counted)
            wanted &= ~counted
        for first, last in self._runs(wanted, table):
            yield from self._decode_run(position, view, table, first, last)

    def _in_place(self, position: int, table: BatchTable, next_base: int) -> Any:
        """Return which batches have offsets within the piece that overlap neither neighbour.

        No CRC covers a base offset, so of two batches that overlap neither is served.
        """
        bases, lasts = table["base_offset"], table["last_offset"]
        if (
            bases[0] >= self._base_min
            and lasts[-1] < next_base
            and (lasts >= bases).all()
            and (bases[1:] > lasts[:-1]).all()
        ):
            self._base_min = int(lasts[-1]) + 1
            return np.ones(len(table), np.bool_)
        lows = np.concatenate(([self._base_min], lasts[:-1] + 1))
        highs = np.concatenate((bases[1:], [next_base])) - 1
        fits = (bases >= lows) & (lasts <= highs) & (lasts >= bases)
        for index in np.flatnonzero(~fits).tolist():
            self.on_data_loss(
                f"{self.source}: batch at position {position + int(table['position'][index])} has offsets "
                f"{int(bases[index])} to {int(lasts[index])}, but those around it leave {int(lows[index])} to "
                f"{int(highs[index])}",
                self._wanted_of(int(lows[index]), int(highs[index]) + 1),
                int(table["size"][index]),
            )
        if fits.any():
            self._base_min = int(lasts[fits][-1]) + 1
        return fits

    def _ruled_out(self, table: BatchTable) -> Any:
        """Return which batches have no wanted record, by their headers."""
        out = np.zeros(len(table), np.bool_)
        times = self.selection.timestamps_ms
        if not times.is_everything:
            out |= table["max_timestamp"] < times.low
            append_time = table["attributes"] & fmt.LOG_APPEND_TIME_BIT != 0
            out |= append_time & (table["max_timestamp"] > times.high)
        for each in self.selection.aborted:
            out |= (
                (table["producer_id"] == each.producer_id)
                & (table["attributes"] & fmt.TRANSACTIONAL_BIT != 0)
                & (table["base_offset"] >= each.first_offset)
                & (table["base_offset"] <= each.last_offset)
            )
        return out

    def _counted(self, table: BatchTable) -> Any:
        """Return which compressed batches only need to be counted, which their headers allow."""
        if self.selection.columns:
            return np.zeros(len(table), np.bool_)
        whole = (table["base_offset"] >= self.piece.start) & (table["last_offset"] < self.piece.end)
        return whole & (table["attributes"] & fmt.CODEC_MASK != 0) & (table["record_count"] != UNKNOWN)

    def _count(self, position: int, view: memoryview, table: BatchTable, counted: Any) -> Iterator[pa.RecordBatch]:
        """Yield as many rows without columns as the headers say. CRCs are checked as always."""
        found = sum(
            int(table["record_count"][index])
            for index in np.flatnonzero(counted).tolist()
            if self._verify(position, view, table, index)
        )
        if found:
            yield rows_without_columns(found)

    def _runs(self, wanted: Any, table: BatchTable) -> Iterator[tuple[int, int]]:
        """Yield ranges of adjacent wanted batches that decode to about OUTPUT_BYTES."""
        edges = np.flatnonzero(np.diff(np.concatenate(([False], wanted, [False])).astype(np.int8)))
        for first, last in edges.reshape(-1, 2).tolist():
            sizes = table["size"][first:last]
            compressed = table["attributes"][first:last] & fmt.CODEC_MASK != 0
            while first < last:
                weights = np.where(compressed, sizes * self._ratio, sizes)
                count = max(1, int(np.searchsorted(np.cumsum(weights), OUTPUT_BYTES, "right")))
                yield first, min(first + count, last)
                first += count
                sizes, compressed = sizes[count:], compressed[count:]

    def _decode_run(
        self, position: int, view: memoryview, table: BatchTable, first: int, last: int
    ) -> Iterator[pa.RecordBatch]:
        rows = table.rows[first:last]
        start, end = int(rows["position"][0]), int(rows["position"][-1] + rows["size"][-1])
        limits: dict[str, Any] = {"start_offset": self.piece.start, "end_offset": self.piece.end}
        try:
            if (rows["magic"] == fmt.MAGIC).all():
                found = decode_rows(view, rows, columns=self.selection.columns, **limits)
            else:
                found = decode_columns(view[start:end], columns=self.selection.columns, **limits)
        except KafkaError as error:
            if last - first > 1:
                middle = (first + last) // 2
                yield from self._decode_run(position, view, table, first, middle)
                yield from self._decode_run(position, view, table, middle, last)
            elif isinstance(error, RecordListTooLargeError):
                raise
            else:
                self._report(position, table, first, error)
            return
        if table["attributes"][first] & fmt.CODEC_MASK:
            self._compressed += end - start
            self._decompressed += found.nbytes
            self._ratio = max(found.nbytes / (end - start), self._decompressed / self._compressed, 1.0)
        found = self._in_time(found)
        if found.num_rows:
            yield found

    def _in_time(self, found: pa.RecordBatch) -> pa.RecordBatch:
        times = self.selection.timestamps_ms
        if times.is_everything or not found.num_rows:
            return found
        values = found.column("timestamp").to_numpy()
        keep = np.zeros(len(values), np.bool_)
        for low, high in times:
            keep |= (values >= low) & (values <= high)
        return found if keep.all() else found.filter(pa.array(keep))

    def _verify(self, position: int, view: memoryview, table: BatchTable, index: int) -> bool:
        """Return whether the CRC confirms a header by which a batch is ruled out or counted."""
        try:
            batch_at(view, int(table["position"][index])).ensure_valid()
        except KafkaError as error:
            self._report(position, table, index, error)
            return False
        return True

    def _report_header(self, position: int, view: memoryview) -> None:
        try:
            checked_batch_size(view, 0)
        except KafkaError as error:
            self._report_rest(position, error)

    def _report(self, position: int, table: BatchTable, index: int, error: KafkaError) -> None:
        """Report an error about a batch of a block that begins at `position`."""
        first, last = int(table["base_offset"][index]), int(table["last_offset"][index])
        self._lose(position + int(table["position"][index]), error, first, last + 1, int(table["size"][index]))

    def _report_rest(self, position: int, error: KafkaError) -> None:
        """Report an error that makes everything from `position` on unreadable."""
        first = max(self._base_min, self.piece.start)
        self._lose(position, error, first, self.piece.end, self.piece.end_position - position)

    def _lose(self, position: int, error: KafkaError, start: int, end: int, size: int) -> None:
        """Report a loss at a position in the source. The position in `error` is relative to a block."""
        what = f"batch at position {position} cannot be read: {error.reason}; offsets {start} to {end - 1}"
        self.on_data_loss(f"{self.source}: {what}", self._wanted_of(start, end), size)

    def _wanted_of(self, start: int, end: int) -> int:
        """Return how many of the offsets [start, end) are requested."""
        return max(0, min(end, self.piece.end) - max(start, self.piece.start))


def _complete(carry: bytearray, view: memoryview) -> int:
    """Complete a batch from `view`, and return the bytes taken from it, or -1 if the batch goes on past `view`."""
    taken = 0
    if len(carry) < fmt.HEADER_SIZE_UP_TO_MAGIC:
        taken = min(fmt.HEADER_SIZE_UP_TO_MAGIC - len(carry), len(view))
        carry += view[:taken]
        if len(carry) < fmt.HEADER_SIZE_UP_TO_MAGIC:
            return -1
    missing = checked_batch_size(carry, 0) - len(carry)
    carry += view[taken : taken + missing]
    return taken + missing if missing <= len(view) - taken else -1
