"""The values of a retention forecast: segments in, fates out. Values only; the rules are in `forecast`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

CHECK_INTERVAL_MS: Final = 300_000
"""`log.retention.check.interval.ms` by default."""


class Tier(enum.Enum):
    LOCAL = "local"
    REMOTE = "remote"


class Hold(enum.Enum):
    """The reason that keeps a segment from being deleted now. The value names it in JSON; `fate_text` explains it."""

    #: its newest record is younger than the limit
    NEWEST_TIMESTAMP = "newest-timestamp"
    #: the timestamp of its newest record is in the future
    FUTURE_TIMESTAMP = "future-timestamp"
    #: an older segment stays, and retention stops at the first that does
    EARLIER_SEGMENT = "earlier-segment"
    #: without it the log would be smaller than the size limit, and no age limit is set
    SIZE_BUDGET = "size-budget"
    #: no limit is set
    UNLIMITED = "unlimited"
    #: cleanup.policy does not have delete
    NO_DELETE_POLICY = "no-delete-policy"
    #: appends go there
    ACTIVE = "active"
    #: the active segment, without records
    EMPTY = "empty"
    #: not every replica has it yet
    HIGH_WATERMARK = "high-watermark"
    #: the remote tier does not have it yet
    NOT_COPIED = "not-copied"
    #: another copy in the remote tier has the same offsets
    COVERED = "covered"
    #: a copy in the remote tier of another lineage, which no reader uses
    OTHER_LINEAGE = "other-lineage"
    #: a copy in progress
    COPYING = "copying"


@dataclass(frozen=True, slots=True)
class Due:
    """The time at which a segment is deleted.

    `rule_ms` is when the rule begins to apply. Nothing is deleted earlier, and readers have the records until then.
    `deleted_by_ms` is the end of the first check after that, and `files_gone_by_ms` the removal of the files.
    """

    rule_ms: int
    deleted_by_ms: int
    files_gone_by_ms: int


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of one copy of a range of records.

    `end_offset` is inclusive, `base_offset - 1` for an empty segment. `rule` deletes it at `due` if nothing is
    appended, None if no rule does. `holds` keep it until then; the first is the main reason. `text` explains.
    """

    tier: Tier
    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    rule: str | None
    due: Due | None
    holds: tuple[Hold, ...]
    text: str
    #: The least time for which the first record stays beyond retention.ms, None if unknown.
    overstay_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        return self.due is not None and self.due.rule_ms <= now_ms


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often a broker checks retention, and how long deleted files stay, in ms."""

    check_interval_ms: int = CHECK_INTERVAL_MS
    file_delete_delay_ms: int = 60_000

    def due(self, rule_ms: int, now_ms: int) -> Due:
        """Return the times for a rule that applies from `rule_ms` on. A time in the past counts as now."""
        begins = max(rule_ms, now_ms)
        deleted = begins + self.check_interval_ms
        return Due(begins, deleted, deleted + self.file_delete_delay_ms)
