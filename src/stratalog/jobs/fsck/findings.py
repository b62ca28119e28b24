"""The kinds of findings. `docs/reference/fsck.md` explains them; a test compares the two."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratalog.jobs.findings import Finding, Severity
from stratalog.jobs.fsck.actions import FileAction


class FsckKind(enum.Enum):
    """One way in which a directory can be wrong. The value is the printed name."""

    # --- batches
    CORRUPT_BATCH = "corrupt-batch"
    NO_BATCH = "no-batch"
    TORN_TAIL = "torn-tail"
    LOST_TAIL = "lost-tail"
    BATCH_HEADER = "batch-header"
    BATCH_ORDER = "batch-order"
    OFFSET_BELOW_BASE = "offset-below-base"
    OFFSET_TOO_FAR = "offset-too-far"
    # --- segments
    SEGMENT_OVERLAP = "segment-overlap"
    SEGMENT_GAP = "segment-gap"
    NO_SEGMENTS = "no-segments"
    # --- indexes
    INDEX_MISSING = "index-missing"
    INDEX_DAMAGED = "index-damaged"
    INDEX_ENTRY = "index-entry"
    INDEX_INEXACT = "index-inexact"
    TXN_INDEX_DAMAGED = "txnindex-damaged"
    TXN_INDEX_ENTRY = "txnindex-entry"
    # --- producers, epochs
    SNAPSHOT_DAMAGED = "snapshot-damaged"
    SNAPSHOT_CONTENT = "snapshot-content"
    EPOCHS_DAMAGED = "epochs-damaged"
    EPOCHS_CONTENT = "epochs-content"
    EPOCH_OF_BATCH = "epoch-of-batch"
    # --- checkpoints and identities
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    CHECKPOINT_OFFSET = "checkpoint-offset"
    CHECKPOINT_UNKNOWN = "checkpoint-unknown"
    BEHIND_RECOVERY_POINT = "behind-recovery-point"
    TOPIC_ID_DAMAGED = "topic-id-damaged"
    TOPIC_ID_DIFFERS = "topic-id-differs"
    META_DAMAGED = "meta-damaged"
    META_DIFFERS = "meta-differs"
    # --- names
    FOREIGN_FILE = "foreign-file"
    UNFINISHED_WRITE = "unfinished-write"
    ORPHAN_FILE = "orphan-file"
    INTERRUPTED_REPLACEMENT = "interrupted-replacement"
    WAITS_FOR_DELETION = "waits-for-deletion"
    STRAY_PARTITION = "stray-partition"
    DUPLICATE_PARTITION = "duplicate-partition"
    KEPT_ASIDE = "kept-aside"
    UNREADABLE = "unreadable"


_WARNINGS: Final = {
    FsckKind.SEGMENT_GAP,
    FsckKind.NO_SEGMENTS,
    FsckKind.CHECKPOINT_UNKNOWN,
    FsckKind.BEHIND_RECOVERY_POINT,
    FsckKind.FOREIGN_FILE,
    FsckKind.ORPHAN_FILE,
    FsckKind.INTERRUPTED_REPLACEMENT,
    FsckKind.STRAY_PARTITION,
}
_NOTES: Final = {
    FsckKind.INDEX_INEXACT,
    FsckKind.UNFINISHED_WRITE,
    FsckKind.WAITS_FOR_DELETION,
    FsckKind.KEPT_ASIDE,
}


@dataclass(frozen=True, slots=True)
class FileFinding(Finding):
    """One thing that is wrong with a file or directory.

    `partition` is "" for files of the log directory itself. `position` is a byte of the file, None for the whole file.
    `size` counts the affected bytes, 0 if that has no meaning. `action` is what repair would do, None for nothing.
    """

    kind: FsckKind
    partition: str
    path: Path
    found: str
    expected: str
    position: int | None = None
    size: int = 0
    action: FileAction | None = None


class FsckFindings(list[FileFinding]):
    """The findings of one check, by default for files of `partition`."""

    def __init__(self, partition: str = "") -> None:
        super().__init__()
        self._partition = partition

    def add(
        self,
        kind: FsckKind,
        path: Path,
        found: str,
        expected: str,
        *,
        partition: str | None = None,
        position: int | None = None,
        size: int = 0,
        action: FileAction | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Add a finding, by default with the severity of its kind."""
        if severity is None:
            severity = Severity.NOTE if kind in _NOTES else Severity.WARNING if kind in _WARNINGS else Severity.ERROR
        name = self._partition if partition is None else partition
        self.append(
            FileFinding(
                severity, kind, name, path, found=found, expected=expected, position=position, size=size, action=action
            )
        )

    def add_unreadable(self, path: Path, error: OSError) -> None:
        """Add a file or directory that the system refuses to read."""
        self.add(FsckKind.UNREADABLE, path, error.strerror or str(error), "a file that can be read")
