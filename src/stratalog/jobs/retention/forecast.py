"""Forecast what retention will delete, when at the earliest, and why not before. Pure: facts in, a forecast out.

It predicts what `retention.plan_retention` decides at every later time if nothing is appended and nothing else changes.
Rules apply from the oldest segment on, each up to the first segment that it keeps. So a segment is deleted

    at once    if it, and every segment before it, ends below the log start offset or exceeds the size limit
    later      when its largest timestamp, and that of every segment before it, is older than retention.ms

A broker checks every `log.retention.check.interval.ms`, and files stay `file.delete.delay.ms` longer: `Due` has all
three times. Records outlive their retention time because a segment is deleted as a whole, with its newest record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratalog.config import LogConfig
from stratalog.inspect import LocalSegment
from stratalog.jobs.retention.fate import Fate, Hold, Rhythm, Tier
from stratalog.jobs.retention.words import roll_text, span_text, time_text
from stratalog.log.retention import DeletionReason, RetentionLimits


def forecast_local(
    segments: Sequence[LocalSegment],
    limits: RetentionLimits,
    config: LogConfig,
    now_ms: int,
    rhythm: Rhythm | None = None,
) -> list[Fate]:
    """Return the fate of each segment of a log, in order, the active one last.

    `limits` are `RetentionLimits.of` of `config`.
    """
    walk = _Walk(segments, limits, config, now_ms, rhythm or Rhythm(file_delete_delay_ms=config.file_delete_delay_ms))
    return [walk.fate(position) for position in range(len(segments))]


class _Walk:
    """The rules applied to all segments, from the oldest on."""

    def __init__(
        self,
        segments: Sequence[LocalSegment],
        limits: RetentionLimits,
        config: LogConfig,
        now_ms: int,
        rhythm: Rhythm,
    ) -> None:
        self._segments = segments
        self._limits = limits
        self._config = config
        self._now_ms = now_ms
        self._rhythm = rhythm
        self._below_start = self._count(lambda i: self._end(i) <= limits.start_offset and not self._is_active(i))
        self._over_size = self._count_over_size()
        self._blocked_from = self._count(lambda i: self._obstacle(i) is None)
        self._slowest = self._running_slowest()

    def _running_slowest(self) -> list[int]:
        """Return, for each segment that retention by size keeps, the one with the largest timestamp up to it."""
        found: list[int] = []
        for position in range(self._over_size, len(self._segments)):
            best = found[-1] if found else position
            newer = self._segments[position].largest_timestamp_ms > self._segments[best].largest_timestamp_ms
            found.append(position if newer else best)
        return found

    def _count(self, holds: Callable[[int], bool]) -> int:
        """Return the number of segments, from the oldest on, before the first for which `holds` is false."""
        position = 0
        while position < len(self._segments) and holds(position):
            position += 1
        return position

    def _count_over_size(self) -> int:
        first = min(self._below_start, self._count(lambda i: self._obstacle(i) is None))
        budget = self._limits.retention_bytes
        if budget < 0:
            return first
        excess = sum(segment.size_bytes for segment in self._segments[first:]) - budget
        position = first
        while position < len(self._segments) and excess >= self._segments[position].size_bytes:
            excess -= self._segments[position].size_bytes
            position += 1
        return position

    def _is_active(self, position: int) -> bool:
        return position + 1 == len(self._segments)

    def _end(self, position: int) -> int:
        """Return the offset after the segment's last."""
        return self._limits.log_end_offset if self._is_active(position) else self._segments[position + 1].base_offset

    def _obstacle(self, position: int) -> Hold | None:
        """Return the reason why no rule may delete a segment at any time, or None."""
        end, limits = self._end(position), self._limits
        if limits.high_watermark < end:
            return Hold.HIGH_WATERMARK
        if self._is_active(position) and self._segments[position].size_bytes == 0:
            return Hold.EMPTY
        if limits.remote_through is None:
            return None
        if self._is_active(position):
            return Hold.ACTIVE
        if limits.log_start_offset >= end or (end > 0 and end - 1 <= limits.remote_through):
            return None
        return Hold.NOT_COPIED

    # --- one segment ------------------------------------------------------------------------------------------------

    def fate(self, position: int) -> Fate:
        obstacle = self._obstacle(position) if position >= self._blocked_from else None
        if position > self._blocked_from and obstacle is None:
            obstacle = Hold.EARLIER_SEGMENT
        if position < min(self._below_start, self._blocked_from):
            return self._made(position, DeletionReason.LOG_START_OFFSET, self._now_ms, (), self._text_below_start())
        if obstacle is None and position < self._over_size:
            return self._made(position, DeletionReason.SIZE, self._now_ms, (), self._text_over_size())
        return self._by_time(position, obstacle)

    def _by_time(self, position: int, obstacle: Hold | None) -> Fate:
        limits, segment = self._limits, self._segments[position]
        active = (Hold.ACTIVE,) if self._is_active(position) and obstacle is not Hold.EMPTY else ()
        if limits.retention_ms < 0:
            hold = self._why_unlimited()
            if obstacle in (Hold.EMPTY, Hold.HIGH_WATERMARK):
                hold = obstacle
            return self._made(position, None, None, _unique((hold, *active)), self._text(hold, position))
        # the time of the segment that keeps this one longest
        slowest = position if position < self._over_size else self._slowest[position - self._over_size]
        rule_ms = self._segments[slowest].largest_timestamp_ms + limits.retention_ms + 1
        holds: tuple[Hold, ...] = ()
        if obstacle is not None:
            holds = (obstacle,)
        if rule_ms > self._now_ms:
            future = self._segments[slowest].largest_timestamp_ms > self._now_ms
            by_itself = Hold.FUTURE_TIMESTAMP if future else Hold.NEWEST_TIMESTAMP
            holds = (*holds, by_itself) if slowest == position else (*holds, Hold.EARLIER_SEGMENT, by_itself)
        text = self._text(holds[0], position, slowest) if holds else self._text_due(segment)
        holds = _unique((*holds, *active))
        if obstacle is not None:  # its end is unknown
            return self._made(position, None, None, holds, text)
        return self._made(position, DeletionReason.TIME, rule_ms, holds, text)

    def _why_unlimited(self) -> Hold:
        config, limits = self._config, self._limits
        if "delete" not in config.cleanup_policy and limits.remote_through is None:
            return Hold.NO_DELETE_POLICY
        return Hold.UNLIMITED if limits.retention_bytes < 0 else Hold.SIZE_BUDGET

    def _made(
        self,
        position: int,
        rule: DeletionReason | None,
        rule_ms: int | None,
        holds: tuple[Hold, ...],
        text: str,
    ) -> Fate:
        segment = self._segments[position]
        due = None if rule_ms is None else self._rhythm.due(rule_ms, self._now_ms)
        overstay = None
        if (
            due is not None
            and rule is DeletionReason.TIME
            and (first := segment.first_timestamp_ms) is not None
            and first >= 0
        ):
            overstay = max(due.rule_ms - (first + self._limits.retention_ms), 0)
        return Fate(
            tier=Tier.LOCAL,
            base_offset=segment.base_offset,
            end_offset=self._end(position) - 1,
            size_bytes=segment.size_bytes,
            largest_timestamp_ms=segment.largest_timestamp_ms,
            rule=None if rule is None else rule.value,
            due=due,
            holds=holds,
            text=text,
            overstay_ms=overstay,
        )

    def _roll(self, active: LocalSegment) -> str:
        return roll_text(active.size_bytes, active.first_timestamp_ms, self._config, self._now_ms)

    # --- in words ---------------------------------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        """The prefix of the keys of the limits in force."""
        return "retention" if self._limits.remote_through is None else "local.retention"

    def _text_below_start(self) -> str:
        return f"all its offsets are below the log start offset {self._limits.start_offset}, so it cannot be read"

    def _text_over_size(self) -> str:
        total = sum(segment.size_bytes for segment in self._segments)
        return (
            f"the log has {total} bytes; without this segment it still has at least "
            f"{self._key}.bytes={self._limits.retention_bytes}"
        )

    def _text_due(self, segment: LocalSegment) -> str:
        age = span_text(self._now_ms - segment.largest_timestamp_ms)
        return (
            f"its newest record is {age} old, more than {self._key}.ms={self._limits.retention_ms} "
            f"({span_text(self._limits.retention_ms)}): the next check deletes it"
        )

    def _text(self, hold: Hold, position: int, slowest: int | None = None) -> str:
        segment, limits = self._segments[position], self._limits
        if hold is Hold.UNLIMITED:
            return f"{self._key}.ms and {self._key}.bytes are -1: no segment expires by age or size"
        if hold is Hold.NO_DELETE_POLICY:
            return (
                "cleanup.policy does not include delete: compaction removes a record once a newer one has its key, "
                f"not before min.compaction.lag.ms={self._config.min_compaction_lag_ms} and never from the active "
                "segment"
            )
        if hold is Hold.SIZE_BUDGET:
            return (
                f"{self._key}.ms is -1, and without this segment the log would have less than "
                f"{self._key}.bytes={limits.retention_bytes}"
            )
        if hold is Hold.HIGH_WATERMARK:
            return (
                f"it ends at offset {self._end(position) - 1}, not below the high watermark {limits.high_watermark}; "
                "only records that all in-sync replicas have are deleted"
            )
        if hold is Hold.EMPTY:
            return "the active segment is empty and stays for new records"
        if hold is Hold.NOT_COPIED:
            return (
                f"the remote tier has offsets up to {limits.remote_through}: a local segment is deleted "
                "only after its copy is finished, however old it is"
            )
        if hold is Hold.ACTIVE:
            return (
                "the active segment is not copied until it rolls; retention rolls it once it expires; "
                f"{self._roll(segment)}"
            )
        if hold is Hold.EARLIER_SEGMENT:
            return self._text_earlier(position, slowest)
        return self._text_young(segment, hold, is_active=self._is_active(position))

    def _text_earlier(self, position: int, slowest: int | None) -> str:
        keeper = self._blocked_from if slowest is None or self._blocked_from < position else slowest
        what = self._segments[keeper]
        why = "which must stay"
        if keeper == slowest:
            why = f"whose newest record is dated {time_text(what.largest_timestamp_ms)}"
        return (
            "retention deletes from the oldest segment on and stops at the first that must stay: segment "
            f"{what.base_offset}, {why}"
        )

    def _text_young(self, segment: LocalSegment, hold: Hold, *, is_active: bool) -> str:
        newest = time_text(segment.largest_timestamp_ms)
        limit = f"{self._key}.ms={self._limits.retention_ms} ({span_text(self._limits.retention_ms)})"
        if hold is Hold.FUTURE_TIMESTAMP:
            ahead = span_text(segment.largest_timestamp_ms - self._now_ms)
            return (
                f"a record dated {newest}, {ahead} in the future, keeps this segment and all later ones until that "
                f"time is older than {limit}; message.timestamp.after.max.ms refuses such records"
            )
        text = f"a segment is deleted as a whole, {limit} after its newest record, dated {newest}"
        first = segment.first_timestamp_ms
        if first is not None and 0 <= first < segment.largest_timestamp_ms:
            spread = span_text(segment.largest_timestamp_ms - first)
            text += f"; its first record is {spread} older and is kept that much longer than {self._key}.ms"
        if is_active:
            text += f". It is the active segment, so every append extends its life; {self._roll(segment)}"
        return text


def _unique(holds: Sequence[Hold]) -> tuple[Hold, ...]:
    return tuple(dict.fromkeys(holds))
