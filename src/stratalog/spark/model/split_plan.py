"""The work of one Spark task that reads."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from stratalog.inspect import Place
from stratalog.log.index import AbortedTransaction


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches in bytes [start_position, end_position) of `log`; offsets [start, end) are taken from them.

    Every batch there begins in [base_min, base_end), which is checked on reading. `copy` holds the same bytes in the
    other tier, in case `log` has been deleted.
    """

    log: Place
    start_position: int
    end_position: int
    start: int
    end: int
    base_min: int
    base_end: int
    copy: Place | None = None

    @property
    def size(self) -> int:
        return self.end_position - self.start_position


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The pieces of one partition that a task reads, in the order of offsets.

    `aborted` applies to pieces of files and objects; a broker reports its own. `topic_id` is None if unknown.
    """

    topic: str
    partition: int
    pieces: tuple[Piece, ...]
    aborted: tuple[AbortedTransaction, ...] = ()
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)
