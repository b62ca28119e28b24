"""The input of one partition's audit: objects as listed, manifests as read, and facts of a data directory.

Values only. What is kept is a partition at a time: its listing and its manifests without their checksums of blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from stratalog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemotePartitionDeleteState
from stratalog.remote.storage import DELETION_ORDER, ObjectInfo, ObjectKey, ObjectKind, ObjectLayout, SegmentManifest
from stratalog.remote.storage.aiven import keys as aiven_keys

#: Without one of these no copy is complete, by layout.
_REQUIRED = {
    ObjectLayout.STRATALOG: ("log", "index", "timeindex", "leader-epoch-checkpoint"),
    ObjectLayout.AIVEN: (aiven_keys.LOG, aiven_keys.INDEXES),
}
#: In the order of a deletion: the manifest first.
_DELETED = {
    ObjectLayout.STRATALOG: tuple(kind.value for kind in DELETION_ORDER),
    ObjectLayout.AIVEN: aiven_keys.SUFFIXES,
}
REMAKEABLE = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX)


@dataclass(frozen=True, slots=True)
class ManifestFault:
    """A manifest that cannot be used; `from_the_future` when it is of a version or format that is not known."""

    reason: str
    from_the_future: bool = False


@dataclass(frozen=True, slots=True)
class SegmentObjects:
    """The objects under one segment id, by the suffixes of their keys."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    objects: Mapping[str, ObjectInfo] = field(hash=False)

    @property
    def layout(self) -> ObjectLayout:
        """The layout that they belong to. Records alone count as ours: both layouts give them the same key."""
        if ObjectKind.MANIFEST.value in self.objects:
            return ObjectLayout.STRATALOG
        is_aiven = aiven_keys.MANIFEST in self.objects or aiven_keys.INDEXES in self.objects
        return ObjectLayout.AIVEN if is_aiven else ObjectLayout.STRATALOG

    @property
    def bytes(self) -> int:
        return sum(info.size for info in self.objects.values())

    @property
    def newest_ms(self) -> int:
        """The time at which the youngest was written, by the store's clock."""
        return max(info.last_modified_ms for info in self.objects.values())

    @property
    def has_required(self) -> bool:
        return all(suffix in self.objects for suffix in _REQUIRED[self.layout])

    @property
    def manifest_key(self) -> str:
        """The key of its manifest, which may be missing."""
        key = ObjectKey(self.segment_id, self.start_offset, ObjectKind.MANIFEST)
        return str(key) if self.layout is ObjectLayout.STRATALOG else aiven_keys.object_key(key)

    @property
    def has_manifest_object(self) -> bool:
        """Whether there is a manifest, readable or not."""
        return ObjectKind.MANIFEST.value in self.objects or aiven_keys.MANIFEST in self.objects

    @property
    def is_replaced(self) -> bool:
        """Whether others have replaced it, so that no reader uses it any more."""
        return ObjectKind.REPLACED.value in self.objects and not self.has_manifest_object

    def get(self, kind: ObjectKind) -> ObjectInfo | None:
        """Return the object of a kind, as our layout names it."""
        return self.objects.get(kind.value)

    def at(self, key: str) -> ObjectInfo | None:
        return self.objects.get(_suffix(key))

    def keys_to_delete(self) -> tuple[str, ...]:
        """Return all keys in the order of a deletion: the manifest first."""
        first = [self.objects[suffix].key for suffix in _DELETED[self.layout] if suffix in self.objects]
        return (*first, *sorted(info.key for info in self.objects.values() if info.key not in first))


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The facts of `__remote_log_metadata` about a partition.

    `segments` are in their last state, before DELETE_SEGMENT_FINISHED; `deleted` are those past it. `is_complete` is
    false when the beginning of the log has gone or was damaged: what it does not mention may have been mentioned once.
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
    """What a data directory knows of a partition. `log_end_offset` is the next one; the lineage as in `remote.lineage`.

    `log_start_offset` is None where no checkpoint has it.
    """

    log_start_offset: int | None
    local_log_start_offset: int
    log_end_offset: int
    lineage: Mapping[int, int] = field(hash=False)


Manifest = SegmentManifest | ManifestFault


def group_objects(
    objects: Iterable[ObjectInfo],
) -> tuple[dict[UUID, SegmentObjects], list[ObjectInfo]]:
    """Return the sets of objects of one partition by segment id, and the objects that are of no segment.

    A second set under the same id but another start offset is no segment.
    """
    found: dict[UUID, tuple[ObjectKey, dict[str, ObjectInfo]]] = {}
    foreign = []
    for info in objects:
        key = parse_key(info.key)
        if key is None:
            foreign.append(info)
            continue
        first, infos = found.setdefault(key.segment_id.id, (key, {}))
        if first.start_offset != key.start_offset:
            foreign.append(info)
        else:
            infos[_suffix(info.key)] = info
    sets = {
        segment_id: SegmentObjects(first.segment_id, first.start_offset, infos)
        for segment_id, (first, infos) in found.items()
    }
    return sets, foreign


def parse_key(key: str) -> ObjectKey | None:
    """Return the segment that an object of either layout is of, or None for every other key.

    The kind is known only for ours.
    """
    found = ObjectKey.parse(key)
    if found is None and _suffix(key) in aiven_keys.SUFFIXES:
        return ObjectKey.parse(f"{key.removesuffix(_suffix(key))}{ObjectKind.LOG.value}")
    return found


def _suffix(key: str) -> str:
    """Return what follows the segment id: `log`, `manifest.json`, `indexes`, ..."""
    return key.rpartition("/")[2].partition(".")[2]
