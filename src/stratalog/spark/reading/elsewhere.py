"""Find the records of a piece whose log was deleted or replaced since planning.

A local segment may have been compacted, deleted, or moved to the remote tier; a remote one may have been replaced. The
offsets of the piece are looked up again in the same topic. Records removed by compaction are not a loss: a newer
record has their key, even if it is after the end of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from stratalog.inspect import ByteSources, Place, PlaceTier, list_remote_segments, of_topic_ids
from stratalog.log.format import noted_topic_id
from stratalog.spark.model import Piece, SegmentRange, SplitPlan, has_compact_policy, remote_segment, within
from stratalog.spark.options import OnDataLoss
from stratalog.spark.planning import Cutter, IndexAccess, LocalSpan, SegmentListing, explains, merge_tiers


def is_of_topic(plan: SplitPlan, place: Place, byte_sources: ByteSources) -> bool:
    """Return whether the directory of a local `.log` belongs to the planned topic. Without an id, the name decides."""
    found = _topic_id(place, byte_sources)
    return found is None or plan.topic_id is None or found == plan.topic_id


def _topic_id(place: Place, byte_sources: ByteSources) -> object:
    return noted_topic_id(Path(place.name).parent, byte_sources.fs)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Looks for pieces of one plan."""

    byte_sources: ByteSources
    on_data_loss: OnDataLoss
    plan: SplitPlan

    @property
    def name(self) -> str:
        return f"{self.plan.topic}-{self.plan.partition}"

    def of(self, piece: Piece, why: str) -> list[Piece]:
        """Return pieces with the remaining records of this one, which `why` made unreadable, and report losses."""
        if piece.copy is not None:
            return [replace(piece, log=piece.copy, copy=None)]
        lost = f"{self.byte_sources.describe(piece.log)} {why} since the query was planned"
        if piece.log.tier is not PlaceTier.LOCAL:
            return self._beyond(piece, lost)
        if not self._is_same_topic(piece.log):
            return self._beyond(piece, f"{lost}, and what is there now is not known to be of the same topic")
        span = self._look(piece)
        found: list[Piece] = []
        at = piece.start
        for each in [*within(merge_tiers(span.segments), piece.start, piece.end), None]:
            until = piece.end if each is None else each.start
            for start, end in self._unexplained(span, at, until):
                found += self._beyond(replace(piece, start=start, end=end), lost)
            if each is not None:
                found += self._cut([each])
                at = each.end
        return found

    def _look(self, piece: Piece) -> LocalSpan:
        """Return the segments that the directory has of a piece now."""
        segments = SegmentListing(Path(piece.log.name).parent, self.on_data_loss, self.byte_sources.fs)
        try:
            return segments.between(piece.start, piece.end)
        except FileNotFoundError:  # the directory was deleted
            return LocalSpan([], piece.end, piece.end)

    def _unexplained(self, span: LocalSpan, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the offsets without a local segment that compaction has not removed: it keeps both ends of a log."""
        edges = [start, *(min(max(edge, start), end) for edge in (span.begin, span.end)), end]
        for part, (low, high) in enumerate(pairwise(edges)):
            is_inside = part == 1
            if low < high and not (is_inside and self._is_compacted(span)):
                yield low, high

    def _is_compacted(self, span: LocalSpan) -> bool:
        return not span.segments or explains(span.segments[0], span.segments[-1], self.byte_sources)

    def _is_same_topic(self, place: Place) -> bool:
        """Return whether the ids agree; without ids, two topics of one name cannot be distinguished."""
        directory = Path(place.name).parent
        if not self.byte_sources.fs.is_dir(directory):
            return True
        return self.plan.topic_id is not None and _topic_id(place, self.byte_sources) == self.plan.topic_id

    def _beyond(self, piece: Piece, lost: str) -> list[Piece]:
        """Return pieces that read through the brokers, which serve both tiers, else from the remote tier."""
        if self.byte_sources.broker is not None:
            return [replace(piece, log=Place(PlaceTier.BROKER, self.name), copy=None)]
        return self.in_remote_tier(piece, lost)

    def in_remote_tier(self, piece: Piece, lost: str) -> list[Piece]:
        """Return pieces with the records that the remote tier has, and report the offsets that it lacks.

        Compaction replaces segments of a bucket with others for the same offsets, without records that are superseded.
        """
        if self.byte_sources.remote_url is None:
            self.gave_up(piece, f"{lost}, and no remote tier was given")
            return []
        ranges = self._remote_ranges(piece)
        found = within(ranges, piece.start, piece.end)
        at = piece.start
        for each in [*found, None]:
            until = piece.end if each is None else each.start
            if at < until and not _is_compacted_between(ranges, at, until):
                self.on_data_loss(
                    f"{lost}; {self.name} has no offsets from {at} to {until - 1} in the remote tier",
                    until - at,
                )
            at = piece.end if each is None else each.end
        return self._cut(found)

    def gave_up(self, piece: Piece, why: str) -> None:
        """Report that a piece is lost."""
        self.on_data_loss(
            f"{why}; {self.name} lacks the offsets from {piece.start} to {piece.end - 1}",
            piece.end - piece.start,
        )

    def _remote_ranges(self, piece: Piece) -> list[SegmentRange]:
        """Return the ranges that the bucket has of the partition now, without the object of the piece itself."""
        plan = self.plan
        listed = list_remote_segments(self.byte_sources.store, [plan.topic], covered=True)
        ids = {each.topic_id for each in listed} if plan.topic_id is None else {plan.topic_id}
        manifests = of_topic_ids(listed, {plan.topic: ids.pop()} if len(ids) == 1 else {})
        segments = [remote_segment(each) for each in manifests.get((plan.topic, plan.partition), [])]
        return merge_tiers([each for each in segments if each.log != piece.log])

    def _cut(self, ranges: list[SegmentRange]) -> list[Piece]:
        cutter = Cutter(self.byte_sources, IndexAccess(self.byte_sources))
        return [piece for each in ranges for piece in cutter.cut(each, each.segment.size + 1)]


def _is_compacted_between(ranges: list[SegmentRange], start: int, end: int) -> bool:
    """Return whether compaction may have removed offsets that no remote segment has: it keeps both ends of a log."""
    before = [each for each in ranges if each.end <= start][-1:]
    behind = [each for each in ranges if each.start >= end][:1]
    return bool(before and behind) and all(has_compact_policy(each.segment) for each in before + behind)
