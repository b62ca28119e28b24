"""What an audit of one partition is given: objects as listed, manifests as read, and what a data directory knows of it.

Values only. What is kept is a partition at a time: its listing and its manifests without their checksums of blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from stratalog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.segment_state import RemotePartitionDeleteState
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_key import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectInfo

#: Without one of these no copy is complete.
REQUIRED = (ObjectKind.LOG, ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.LEADER_EPOCHS)
#: Of the layout of Aiven's plugin, whose records have the same key.
_OTHER_SUFFIXES = ("indexes", "rsm-manifest")
REMAKEABLE = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX)


@dataclass(frozen=True, slots=True)
class ManifestFault:
    """A manifest that cannot be used; `from_the_future` when it is of a version or format that is not known."""

    reason: str
    from_the_future: bool = False


@dataclass(frozen=True, slots=True)
class SegmentObjects:
    """The objects under one segment id."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    objects: Mapping[ObjectKind, ObjectInfo] = field(hash=False)

    @property
    def bytes(self) -> int:
        return sum(info.size for info in self.objects.values())

    @property
    def newest_ms(self) -> int:
        """When the youngest was written, by the store's clock."""
        return max(info.last_modified_ms for info in self.objects.values())

    @property
    def has_required(self) -> bool:
        return all(kind in self.objects for kind in REQUIRED)

    def key(self, kind: ObjectKind) -> str:
        return str(ObjectKey(self.segment_id, self.start_offset, kind))

    def keys_to_delete(self) -> tuple[str, ...]:
        """All keys in the order of a deletion: the manifest first."""
        return tuple(
            self.objects[kind].key
            for kind in (
                ObjectKind.MANIFEST,
                *(kind for kind in ObjectKind if kind is not ObjectKind.MANIFEST),
            )
            if kind in self.objects
        )


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """What `__remote_log_metadata` says of a partition.

    `segments` are in their last state, before DELETE_SEGMENT_FINISHED; `deleted` are those past it. `is_complete` is false
    when the beginning of the log has gone or was damaged: what it does not mention may have been mentioned once.
    """

    segments: Mapping[UUID, RemoteLogSegmentMetadata] = field(default_factory=dict, hash=False)
    deleted: frozenset[UUID] = frozenset()
    delete_state: RemotePartitionDeleteState | None = None
    is_complete: bool = True

    @property
    def mentions_anything(self) -> bool:
        return bool(self.segments or self.deleted or self.delete_state is not None)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a data directory says of a partition. `log_end_offset` is the next one; the lineage as in `remote.lineage`.

    `log_start_offset` is None where no checkpoint tells.
    """

    log_start_offset: int | None
    local_log_start_offset: int
    log_end_offset: int
    lineage: Mapping[int, int] = field(hash=False)


Manifest = SegmentManifest | ManifestFault


def group_objects(
    objects: Iterable[ObjectInfo],
) -> tuple[dict[UUID, SegmentObjects], list[ObjectInfo]]:
    """The sets of objects of one partition by segment id, and the objects that are of no segment.

    A second set under the same id but another start offset is no segment of ours; neither is one of another layout, whose
    records have a key of ours.
    """
    found: dict[UUID, tuple[ObjectKey, dict[ObjectKind, ObjectInfo]]] = {}
    foreign = []
    others: set[UUID] = set()
    for info in objects:
        key = ObjectKey.parse(info.key)
        if key is None:
            foreign.append(info)
            others |= _segment_of_another_layout(info.key)
            continue
        first, infos = found.setdefault(key.segment_id.id, (key, {}))
        if first.start_offset != key.start_offset:
            foreign.append(info)
        else:
            infos[key.kind] = info
    sets = {
        segment_id: SegmentObjects(first.segment_id, first.start_offset, infos)
        for segment_id, (first, infos) in found.items()
    }
    for segment_id in others & sets.keys():
        foreign += sets.pop(segment_id).objects.values()
    return sets, foreign


def _segment_of_another_layout(key: str) -> set[UUID]:
    """The id of the segment that an object of another layout is of: it stands beside records as ours do."""
    stem, _, suffix = key.rpartition(".")
    beside = ObjectKey.parse(f"{stem}.{ObjectKind.LOG.value}") if suffix in _OTHER_SUFFIXES else None
    return set() if beside is None else {beside.segment_id.id}
