"""Find the end of a log, and the faults after its last sound batch.

An acknowledged record keeps its offset forever: a consumer that read it, or committed after it, would otherwise take
another record for it. So a torn write is cut as recovery cuts it, but damage in flushed data never moves the end of the
log back. The damage stays in place, readers get an error, and the log continues after it in a new segment. To let
readers skip it, accept the loss: the bytes are then moved to a `.cut` file.

Several files show where a log ended: the recovery point, the producer snapshot of a clean stop, and headers under a
wrong CRC. The first two have no checksum of the offset, so if the log itself looks whole, both must agree (as in
`log.recovery`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stratalog.jobs.findings import Severity
from stratalog.jobs.fsck.actions import BeginSegment, CutTail, RebuildIndexes
from stratalog.jobs.fsck.findings import FsckFindings, FsckKind
from stratalog.jobs.fsck.indexes import index_format
from stratalog.jobs.fsck.segment import DAMAGE, Fault, SegmentScan
from stratalog.jobs.index import INDEX_INTERVAL_BYTES
from stratalog.log.format import log_file
from stratalog.log.segment import header_at
from stratalog.records import BATCH_SIZE_MIN, HEADER_SIZE, LOG_OVERHEAD
from stratalog.util import FileSystem

_CHUNK_SIZE: Final = 1024 * 1024


class LogEnd:
    """The end of one partition's log. `segments` are all of its segments, in order.

    `was_clean`: the last broker stopped cleanly. `recovery_point` is None if unknown. `snapshots` has their offsets.
    """

    def __init__(
        self,
        directory: Path,
        segments: Sequence[SegmentScan],
        snapshots: Sequence[int],
        fs: FileSystem,
        *,
        was_clean: bool,
        recovery_point: int | None,
    ) -> None:
        self._directory = directory
        self._last = segments[-1] if segments else None
        self._fs = fs
        self._was_clean = was_clean
        self._recovery_point = recovery_point
        self._snapshot = max(snapshots, default=0)
        self._tail = trailing_damage(self._last) if self._last is not None else []
        self.sound_end_offset = 0 if self._last is None else self._last.next_offset
        #: Where the log ended: after its last sound batch, or later.
        self.offset = self._known_end()

    def _known_end(self) -> int:
        end = self.sound_end_offset
        if self._tail and (self._was_clean or self._recovery_point is None):
            end = max(end, self._snapshot)
        if self._recovery_point is not None and (self._tail or self._snapshot == self._recovery_point):
            end = max(end, self._recovery_point)
        if end == self.sound_end_offset and self._recovery_point is None and self._is_more_than_torn():
            claimed = max((fault.end_offset for fault in self._tail), default=0)
            base_offset = 0 if self._last is None else self._last.base_offset
            end = max(end, claimed, base_offset + 1)
        return end

    def _is_more_than_torn(self) -> bool:
        return self._last is not None and bool(self._tail) and not _is_torn_write(self._last, self._fs)

    def findings(self, *, accept_loss: bool) -> FsckFindings:
        """Return the faults at the end, and their repairs."""
        found = FsckFindings(self._directory.name)
        is_lost = self.offset > self.sound_end_offset
        if self._last is None or not self._tail:
            if is_lost:
                path = self._directory if self._last is None else self._last.path
                end, expected = f"an end at offset {self.sound_end_offset}", f"records up to offset {self.offset - 1}"
                expected += ", as recovery point and snapshot say"
                found.add(FsckKind.LOST_TAIL, path, end, expected, action=self._begin())
            return found
        path, damage, cut = self._last.path, self._tail[0], cut_of(self._last, self._fs)
        position, size = self._last.sound_end, self._last.size - self._last.sound_end
        behind = f"after the last sound batch: {damage.found}"
        if not is_lost:
            is_zeros = len(self._tail) == 1 and damage.found == "zeros"
            found.add(
                FsckKind.TORN_TAIL,
                path,
                behind,
                f"the end of the log, at offset {self.sound_end_offset}",
                position=position,
                size=size,
                action=cut,
                severity=Severity.WARNING if is_zeros else None,
            )
            return found
        expected = f"records of offsets {self.sound_end_offset} to {self.offset - 1}, which were acknowledged"
        found.add(FsckKind.LOST_TAIL, path, behind, expected, position=position, size=size, action=self._begin())
        if accept_loss:
            position, size = damage.position, damage.size
            found.add(damage.kind, path, damage.found, damage.expected, position=position, size=size, action=cut)
        return found

    def _begin(self) -> BeginSegment:
        return BeginSegment(self._directory / log_file(self.offset), self.offset)


def trailing_damage(facts: SegmentScan) -> list[Fault]:
    """Return the faults after the last sound batch of a segment."""
    return [one for one in facts.faults if one.position >= facts.sound_end and one.kind in DAMAGE]


def cut_of(facts: SegmentScan, fs: FileSystem) -> CutTail:
    """Return the cut after the last sound batch."""
    then = RebuildIndexes(facts.path, facts.base_offset, index_format(facts, fs), INDEX_INTERVAL_BYTES)
    return CutTail(facts.path, facts.sound_end, then)


def _is_torn_write(facts: SegmentScan, fs: FileSystem) -> bool:
    """Return whether only zeros or the beginning of one batch follow the last sound batch."""
    position, size = facts.sound_end, facts.size
    if size - position < BATCH_SIZE_MIN:
        return True
    with fs.open(facts.path) as log:
        head = log.pread(HEADER_SIZE, position)
        header = header_at(head, 0, len(head))
        if header is not None:
            is_next = header[0] == facts.next_offset or not facts.batches
            return is_next and position + header[1] + LOG_OVERHEAD > size
        starts = range(position, size, _CHUNK_SIZE)
        return not any(any(log.pread(min(_CHUNK_SIZE, size - start), start)) for start in starts)
