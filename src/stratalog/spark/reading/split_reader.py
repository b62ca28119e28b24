"""Read one split on a worker: either tier, and what to do when a file is gone since the query was planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa

from stratalog.remote.catalog import list_remote_segments
from stratalog.spark.places import Place, PlaceMissingError, Places, Tier
from stratalog.spark.planning.index_access import IndexAccess
from stratalog.spark.planning.segments import SegmentRange, may_be_compacted, merge_tiers, remote_segment
from stratalog.spark.planning.snapshot import of_one_topic_each
from stratalog.spark.planning.splits import Piece, SplitPlan, cut_segment
from stratalog.spark.reading.blocks import read_blocks
from stratalog.spark.reading.broker_read import BrokerReader, Missing
from stratalog.spark.reading.data_loss import OnDataLoss
from stratalog.spark.reading.decode import PieceDecoder, Selection

#: What was to be read may have gone elsewhere, and from there too while it is looked for.
_LOOKS_AGAIN: Final = 3


@dataclass(frozen=True, slots=True)
class SplitReader:
    """Reads splits of one query."""

    places: Places
    on_data_loss: OnDataLoss
    read_committed: bool = False

    def read(self, plan: SplitPlan, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The wanted records of a split, in order. Raises what `on_data_loss` raises, RemoteStorageError, OSError."""
        selection = replace(selection, aborted=plan.aborted)
        for piece in plan.pieces:
            yield from self._read_piece(plan, piece, selection)

    def _read_piece(
        self, plan: SplitPlan, piece: Piece, selection: Selection, again: int = _LOOKS_AGAIN
    ) -> Iterator[pa.RecordBatch]:
        """One piece, wherever it is; `again` is how often that may be looked for anew."""
        if piece.log.tier is Tier.BROKER:
            yield from self._read_from_broker(plan, piece, selection, again)
            return
        source = self.places.describe(piece.log)
        blocks = read_blocks(self.places, piece.log, piece.start_position, piece.end_position)
        try:
            first = next(blocks, None)
        except PlaceMissingError:
            for elsewhere in self._elsewhere(plan, piece, again):
                yield from self._read_piece(plan, elsewhere, selection, again - 1)
            return
        decoder = PieceDecoder(piece, source, selection, self.on_data_loss)
        try:
            yield from decoder.decode(chain([first] if first else [], blocks))
        except PlaceMissingError:
            self.on_data_loss(
                f"{source} was deleted while it was read; records up to offset {piece.end - 1} are missing",
                piece.end - piece.start,
            )

    def _read_from_broker(
        self, plan: SplitPlan, piece: Piece, selection: Selection, again: int
    ) -> Iterator[pa.RecordBatch]:
        """Through the broker; what it does not have any more may be in the remote tier."""
        reader = BrokerReader(
            self.places.cluster,
            plan.topic,
            plan.partition,
            plan.topic_id,
            self.read_committed,
            self.on_data_loss,
        )
        for found in reader.read(piece, selection):
            if not isinstance(found, Missing):
                yield found
                continue
            gone = replace(piece, start=found.start, end=found.end)
            lost = f"{self.places.describe(piece.log)}: {found.why}"
            for elsewhere in self._in_remote_tier(plan, gone, lost, again):
                yield from self._read_piece(plan, elsewhere, selection, again - 1)

    def _elsewhere(self, plan: SplitPlan, piece: Piece, again: int) -> list[Piece]:
        """Where the records of a piece are, when its log is gone: a local segment may be in the remote tier by now."""
        lost = f"{self.places.describe(piece.log)} is gone since the query was planned"
        if piece.copy is not None:
            return [replace(piece, log=piece.copy, copy=None)]
        if self.places.broker is not None:  # it knows where its records are, in either tier
            place = Place(Tier.BROKER, f"{plan.topic}-{plan.partition}")
            return [replace(piece, log=place)]
        return self._in_remote_tier(plan, piece, lost, again)

    def _in_remote_tier(self, plan: SplitPlan, piece: Piece, lost: str, again: int) -> list[Piece]:
        """What the remote tier has of a piece that is not where it was; tells of what it lacks.

        Segments of a bucket are replaced when they are compacted: what takes their place has the same offsets, but for
        those of records that have a newer one.
        """
        name = f"{plan.topic}-{plan.partition}"
        if self.places.remote_url is None or not again:
            where = ", and no remote tier was given" if self.places.remote_url is None else ""
            self.on_data_loss(
                f"{lost}{where}; {name} lacks the offsets from {piece.start} to {piece.end - 1}",
                piece.end - piece.start,
            )
            return []
        found = self._remote_ranges(plan, piece)
        at = piece.start
        for each in [*found, None]:
            until = piece.end if each is None else each.start
            if at < until and not any(may_be_compacted(other.segment) for other in found):
                self.on_data_loss(
                    f"{lost}; {name} has no offsets from {at} to {until - 1} in the remote tier", until - at
                )
            at = piece.end if each is None else each.end
        indexes = IndexAccess(self.places)
        return [
            found_piece
            for each in found
            for found_piece in cut_segment(each, indexes.offset_entries(each.segment), each.segment.size + 1)
        ]

    def _remote_ranges(self, plan: SplitPlan, piece: Piece) -> list[SegmentRange]:
        of_topic = {} if plan.topic_id is None else {plan.topic: plan.topic_id}
        manifests = of_one_topic_each(
            list_remote_segments(self.places.store, [plan.topic], covered=True), of_topic
        )
        segments = [remote_segment(each) for each in manifests.get((plan.topic, plan.partition), [])]
        segments = [each for each in segments if each.log != piece.log]
        return [
            replace(each, start=max(each.start, piece.start), end=min(each.end, piece.end))
            for each in merge_tiers(segments)
            if max(each.start, piece.start) < min(each.end, piece.end)
        ]
