"""The findings of a bucket audit, and the repairs for them: values, without I/O.

`docs/reference/tiered_storage.md` has the table.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from stratalog.jobs.findings import Finding
from stratalog.remote.api import RemoteLogSegmentMetadata
from stratalog.remote.storage import ObjectKind, PendingUpload


class AuditKind(enum.Enum):
    """One way in which a bucket can be wrong. The value is the printed name."""

    # --- objects of a segment
    ORPHAN = "orphan"
    UNFINISHED_COPY = "unfinished-copy"
    UNFINISHED_DELETION = "unfinished-deletion"
    UNDELETED = "undeleted"
    REPLACED = "replaced"
    UNLISTED_OBJECT = "unlisted-object"
    UNFINISHED_UPLOAD = "unfinished-upload"
    MISSING_SEGMENT = "missing-segment"
    MISSING_OBJECT = "missing-object"
    WRONG_SIZE = "wrong-size"
    MISSING_MANIFEST = "missing-manifest"
    DAMAGED_MANIFEST = "damaged-manifest"
    UNKNOWN_VERSION = "unknown-version"
    # --- what is in them (only when every object is read)
    DAMAGED_OBJECT = "damaged-object"
    DAMAGED_BATCH = "damaged-batch"
    WRONG_INDEX = "wrong-index"
    SEALED = "sealed"
    # --- metadata against objects
    UNREFERENCED = "unreferenced"
    METADATA_DIFFERS = "metadata-differs"
    UNKNOWN_PARTITION = "unknown-partition"
    # --- offsets
    COVERED = "covered"
    OVERLAP = "overlap"
    GAP = "gap"
    LOST_OFFSETS = "lost-offsets"
    OTHER_LINEAGE = "other-lineage"
    BELOW_LOG_START = "below-log-start"
    # --- the bucket
    SEVERAL_TOPIC_IDS = "several-topic-ids"
    FOREIGN_OBJECT = "foreign-object"


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete these keys in order (a manifest first), unless a manifest now exists at `manifest_key`."""

    keys: tuple[str, ...]
    manifest_key: str | None = None

    def describe(self) -> str:
        return f"delete {len(self.keys)} object{'' if len(self.keys) == 1 else 's'}"


def in_words(kinds: Sequence[ObjectKind]) -> str:
    *first, last = [kind.value for kind in kinds]
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True, slots=True)
class RemakeIndexes:
    """Rebuild the objects of a segment other than its records; `manifest_key` is the key of its manifest."""

    manifest_key: str
    kinds: tuple[ObjectKind, ...]

    def describe(self) -> str:
        return f"rebuild {in_words(self.kinds)} from the records"


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write the manifest of a segment whose copy the metadata declares finished, if its objects prove it."""

    metadata: RemoteLogSegmentMetadata

    def describe(self) -> str:
        return "write the manifest from the metadata, if the objects prove it"


@dataclass(frozen=True, slots=True)
class TakeBackUpload:
    """Abort a multipart upload that was never completed."""

    upload: PendingUpload

    def describe(self) -> str:
        return "abort the upload"


Mend = DeleteObjects | RemakeIndexes | WriteManifest | TakeBackUpload


@dataclass(frozen=True, slots=True)
class Offsets:
    """A range, both ends inclusive."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFinding(Finding):
    """One thing that is wrong with a bucket.

    `bytes` is the size of the affected objects or records, 0 if that has no meaning. `action` tells the operator what
    to do. `mend` is what repair would do, None for nothing. `newest_ms` is when the youngest affected object was
    written, by the clock of the store or of the broker that wrote the metadata. Repair compares it with its grace
    period.
    """

    kind: AuditKind
    topic: str = ""
    partition: int | None = None
    segment_id: UUID | None = None
    object_key: str | None = None
    offsets: Offsets | None = None
    bytes: int = 0
    text: str
    action: str
    mend: Mend | None = None
    newest_ms: int = 0


@dataclass(frozen=True, slots=True)
class PlannedMend:
    """One step of a repair, and the reason for it."""

    finding: ObjectFinding
    mend: Mend


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The repairs to make, and those that are postponed because the objects are younger than the grace period."""

    mends: tuple[PlannedMend, ...]
    too_young: tuple[ObjectFinding, ...]


def plan_repair(findings: list[ObjectFinding], now_ms: int, grace_ms: int) -> RepairPlan:
    """Return the mends that repair may carry out at `now_ms`, each once, and those that are too young for it.

    An object is old enough at an age of exactly `grace_ms`. A time in the future means that a clock is wrong: the
    object counts as young, whatever the period.
    """
    mends: dict[Mend, PlannedMend] = {}
    young = []
    for finding in findings:
        if finding.mend is None:
            continue
        if finding.newest_ms > now_ms - grace_ms:
            young.append(finding)
        else:
            mends.setdefault(finding.mend, PlannedMend(finding, finding.mend))
    return RepairPlan(_segments_at_once(list(mends.values())), tuple(young))


def _segments_at_once(mends: list[PlannedMend]) -> tuple[PlannedMend, ...]:
    """Combine the rebuilds of each segment into one mend, so that its records are read once."""
    kinds: dict[str, list[ObjectKind]] = {}
    for planned in mends:
        if isinstance(planned.mend, RemakeIndexes):
            kinds.setdefault(planned.mend.manifest_key, []).extend(planned.mend.kinds)
    merged = []
    for planned in mends:
        mend = planned.mend
        if not isinstance(mend, RemakeIndexes):
            merged.append(planned)
        elif (both := kinds.pop(mend.manifest_key, None)) is not None:
            finding = planned.finding if len(both) == 1 else replace(planned.finding, object_key=None)
            merged.append(PlannedMend(finding, RemakeIndexes(mend.manifest_key, tuple(both))))
    return tuple(merged)
