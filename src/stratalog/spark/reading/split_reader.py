"""Read one split on a worker, in either tier, even if files were deleted or replaced since the query was planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from stratalog.inspect import ByteSources, PlaceChangedError, PlaceMissingError, PlaceTier
from stratalog.spark.model import Piece, SplitPlan
from stratalog.spark.options import OnDataLoss
from stratalog.spark.reading.blocks import read_blocks
from stratalog.spark.reading.broker_read import BrokerReader, Missing
from stratalog.spark.reading.decode import PieceDecoder, Selection
from stratalog.spark.reading.elsewhere import Elsewhere, is_of_topic

#: Retries, because the new location of a piece may be replaced too.
_LOOKS_AGAIN: Final = 8


@dataclass(frozen=True, slots=True)
class SplitReader:
    byte_sources: ByteSources
    on_data_loss: OnDataLoss
    read_committed: bool = False

    def read(self, plan: SplitPlan, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of a split, in order.

        Raises the errors of `on_data_loss`, RemoteStorageError, OSError.
        """
        selection = replace(selection, aborted=plan.aborted)
        for piece in plan.pieces:
            yield from self._read_piece(plan, piece, selection)

    def _read_piece(
        self, plan: SplitPlan, piece: Piece, selection: Selection, again: int = _LOOKS_AGAIN
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of one piece. `again` is how often its location may be looked up again."""
        if piece.log.tier is PlaceTier.BROKER:
            yield from self._read_from_broker(plan, piece, selection, again)
            return
        decoder = PieceDecoder(piece, self.byte_sources.describe(piece.log), selection, self.on_data_loss)
        why = "is of another topic"
        if piece.log.tier is not PlaceTier.LOCAL or is_of_topic(plan, piece.log, self.byte_sources):
            blocks = read_blocks(self.byte_sources, piece.log, piece.start_position, piece.end_position)
            try:
                with closing(blocks):
                    yield from decoder.decode(blocks)
                return
            except PlaceMissingError as error:  # before the first block or in the middle
                why = "was changed or replaced" if isinstance(error, PlaceChangedError) else "is gone"
        rest = replace(piece, start=decoder.reached)
        if rest.start < rest.end:
            yield from self._read_elsewhere(plan, rest, selection, why, again)

    def _read_elsewhere(
        self, plan: SplitPlan, piece: Piece, selection: Selection, why: str, again: int
    ) -> Iterator[pa.RecordBatch]:
        elsewhere = Elsewhere(self.byte_sources, self.on_data_loss, plan)
        if again <= 0:
            elsewhere.gave_up(piece, f"{self.byte_sources.describe(piece.log)} and its replacement no longer exist")
            return
        for found in elsewhere.of(piece, why):
            yield from self._read_piece(plan, found, selection, again - 1)

    def _read_from_broker(
        self, plan: SplitPlan, piece: Piece, selection: Selection, again: int
    ) -> Iterator[pa.RecordBatch]:
        """Read through the broker. Records that it no longer has may be in the remote tier."""
        elsewhere = Elsewhere(self.byte_sources, self.on_data_loss, plan)
        reader = BrokerReader(
            self.byte_sources.cluster,
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
            lost = f"{self.byte_sources.describe(piece.log)}: {found.why}"
            for each in elsewhere.in_remote_tier(gone, lost):
                yield from self._read_piece(plan, each, selection, again - 1)
