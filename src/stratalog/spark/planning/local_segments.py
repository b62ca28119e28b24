"""Segments of one partition directory, as they are while a broker may append, roll and delete."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stratalog.inspect import Place, PlaceTier, read_segment_end
from stratalog.log import SegmentFiles, list_segments_once, undisturbed
from stratalog.spark.model import Segment
from stratalog.spark.options import OnDataLoss
from stratalog.util import REAL_FILESYSTEM, FileSystem


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that is not the last one, as found when its `.log` had `file_size` bytes."""

    file_size: int
    next_base: int
    segment: Segment


class LocalSpan(NamedTuple):
    """Segments, and the bounds of their log: offsets within the bounds that no segment has were compacted."""

    segments: list[Segment]
    begin: int
    end: int


class SegmentListing:
    """The segments of a partition directory now; a running broker may append, roll and delete at the same time.

    `on_damage` is called for damage that a crash does not explain and that cannot be read around. `sealed` holds the
    segments of an earlier listing by base offset. Their files are not opened again, and it is updated.
    """

    def __init__(
        self,
        directory: Path,
        on_damage: OnDataLoss,
        fs: FileSystem = REAL_FILESYSTEM,
        sealed: dict[int, SealedSegment] | None = None,
    ) -> None:
        self._directory = directory
        self._on_damage = on_damage
        self._fs = fs
        self._sealed = {} if sealed is None else sealed
        self._damages: list[tuple[str, int, int]] = []

    def list(self) -> list[Segment]:
        """Return all segments with records, in order."""
        return self.between(0, None).segments

    def between(self, start: int, end: int | None) -> LocalSpan:
        """Return the segments of the offsets [start, end). With `end` None, up to the end of the log."""
        found = undisturbed(self._directory, lambda: self._look(start, end), self._fs)
        for damage in self._damages:
            self._on_damage(*damage)
        return found

    def _look(self, start: int, end: int | None) -> LocalSpan:
        self._damages.clear()
        files = list_segments_once(self._directory, self._fs)
        found, sealed = [], {}
        log_end: int | None = files[0].base_offset if files else None
        followers = [*files[1:], None] if files else []  # a partition that is being created has no log yet
        for each, following in zip(files, followers, strict=True):
            next_base = None if following is None else following.base_offset
            if (next_base is not None and next_base <= start) or (end is not None and each.base_offset >= end):
                log_end = each.base_offset if next_base is None else next_base
                continue
            segment = self._known(each, next_base) or self._segment(each, next_base)
            if next_base is not None:
                sealed[each.base_offset] = SealedSegment(each.size, next_base, segment)
            log_end = segment.end_offset if next_base is None else next_base
            if segment.end_offset > segment.base_offset:
                found.append(segment)
        self._sealed.clear()
        self._sealed.update(sealed)
        begin = files[0].base_offset if files else 0
        return LocalSpan(found, begin, begin if log_end is None else log_end)

    def _known(self, files: SegmentFiles, next_base: int | None) -> Segment | None:
        known = self._sealed.get(files.base_offset)
        is_same = known is not None and (known.file_size, known.next_base) == (files.size, next_base)
        return known.segment if known is not None and is_same else None

    def _segment(self, files: SegmentFiles, next_base: int | None) -> Segment:
        with self._fs.open(files.log) as log:
            size = log.size()
            tail = read_segment_end(files, log, self._fs)
            newest = tail.max_timestamp_ms
            if next_base is not None and self._fs.size(files.log) != size:
                newest = None  # the file was replaced, and the time index may belong to the new one
        rest = size - tail.end_position
        lost = 0 if next_base is None else max(0, next_base - tail.end_offset)
        if tail.damage is not None:
            self._damages.append((tail.damage, lost, rest))
        elif next_base is not None and rest:
            damage = (
                f"{files.log}: {rest} bytes at position {tail.end_position} are not a whole batch, but a segment with "
                f"base offset {next_base} follows; offsets {tail.end_offset} to {next_base - 1}"
            )
            self._damages.append((damage, lost, rest))
        return Segment(
            base_offset=files.base_offset,
            end_offset=tail.end_offset if next_base is None else min(tail.end_offset, next_base),
            size=tail.end_position,
            max_timestamp_ms=newest,
            log=Place(PlaceTier.LOCAL, str(files.log), tail.mark),
            index=_local(files.index),
            time_index=_local(files.timeindex),
            txn_index=None if files.txnindex is None else _local(files.txnindex),
            snapshot=None if files.snapshot is None else _local(files.snapshot),
            is_active=next_base is None,
        )


def _local(path: Path) -> Place:
    return Place(PlaceTier.LOCAL, str(path))
