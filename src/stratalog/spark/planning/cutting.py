"""Cut segments into pieces with reliable bounds: those of local segments are checked against batches at the cuts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from stratalog.inspect import ByteSources, Place, PlaceMissingError, PlaceTier
from stratalog.records import RecordBatch, batch_format as fmt
from stratalog.spark.model import Piece, Segment, SegmentRange
from stratalog.spark.planning.index_access import IndexAccess
from stratalog.spark.planning.splits import apart, cut_segment, needs_index
from stratalog.util import File

logger = logging.getLogger("stratalog.spark")


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts segments of files and objects into pieces with disjoint offsets, by which each can be found again."""

    byte_sources: ByteSources
    indexes: IndexAccess

    def cut(self, wanted: SegmentRange, split_bytes: int, copy: Place | None = None) -> list[Piece]:
        """Cut the range into pieces of about `split_bytes`. `copy` has the same bytes in the other tier."""
        entries = self.indexes.offset_entries(wanted.segment) if needs_index(wanted, split_bytes) else None
        pieces = cut_segment(wanted, entries, split_bytes, copy)
        if wanted.segment.tier is PlaceTier.REMOTE:
            return pieces if entries is None else apart(pieces, entries, wanted.segment)
        try:
            proved = self._prove(wanted.segment, pieces)
        except PlaceMissingError:  # deleted or replaced since: the reader looks for its offsets
            return pieces if entries is None else apart(pieces, entries, wanted.segment)
        if proved is None:
            logger.warning("%s does not fit its log; the segment is read without it", wanted.segment.index)
            return cut_segment(wanted, None, split_bytes, copy)
        return proved

    def _prove(self, segment: Segment, pieces: list[Piece]) -> list[Piece] | None:
        """Return the pieces of a local segment with exact bounds, from the batch headers at the cuts.

        Return None if no batch with the expected offset begins at a cut.
        """
        exact = []
        with self.byte_sources.open_local(segment.log) as file:
            for piece in pieces:
                low = _base_offset_at(file, segment, piece.start_position)
                high = _base_offset_at(file, segment, piece.end_position)
                if low is None or high is None or not piece.base_min <= low < high <= piece.base_end:
                    return None
                if piece is pieces[0] and low > piece.start and piece.start_position:
                    return None  # the index points past the first offset that is wanted
                if piece is pieces[-1] and high < piece.end:
                    return None  # or before the last one
                start, end = max(piece.start, low), min(piece.end, high)
                if start < end:
                    exact.append(replace(piece, start=start, end=end, base_min=low, base_end=high))
        return exact


def _base_offset_at(file: File, segment: Segment, position: int) -> int | None:
    """Return the base offset of the batch at a position, or None. The end of the segment counts as a batch."""
    if position == 0:
        return segment.base_offset
    if position == segment.size:
        return segment.end_offset
    header = file.pread(fmt.HEADER_SIZE, position)
    if len(header) < fmt.HEADER_SIZE:
        return None
    batch = RecordBatch(header)
    return batch.base_offset if batch.magic == fmt.MAGIC else None
