"""Buckets for tests of the audit: one made once by a real copy, and cheap copies of it to be spoilt.

bucket = SoundBucket.make(path)            # segments as the broker copies them, and the metadata of them
spoilt = bucket.copy()                     # its own store and metadata
spoilt.flip(0, ObjectKind.LOG); spoilt.state(1, DELETE_STARTED); spoilt.audit()
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from stratalog.inspect.data_dirs import DataDirSet
from stratalog.inspect.facts import LogFacts, PartitionMetadata
from stratalog.jobs.audit.bucket import AuditOptions, BucketAudit, audit_bucket
from stratalog.jobs.audit.findings import plan_repair
from stratalog.jobs.audit.repair import carry_out
from stratalog.jobs.audit.segment_history import NotProvedError
from stratalog.remote.api.interfaces import RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.world import World

HOUR_MS = 3_600_000


class KnownDirs(DataDirSet):
    """Log directories of which what they say is given."""

    def __init__(self, metadata: dict[TopicIdPartition, PartitionMetadata], log_facts: LogFacts | None = None) -> None:
        super().__init__([])
        self._known = metadata
        self._log_facts = log_facts

    @property
    def has_metadata(self) -> bool:
        return True

    def replay(self) -> Iterator[dict[TopicIdPartition, PartitionMetadata]]:
        yield self._known

    def log_facts(self, partition: TopicIdPartition) -> LogFacts | None:
        return self._log_facts


@dataclass
class SoundBucket:
    """Every object of a partition with some segments, and their metadata in the order of offsets."""

    partition: TopicIdPartition
    objects: dict[str, bytes]
    segments: list[RemoteLogSegmentMetadata]

    @classmethod
    def make(cls, path: Path, batches: int = 100) -> SoundBucket:
        with World(path) as world:
            world.append(batches)
            world.tier()
            objects = {key: bytes(world.inner.get(key)) for key in world.objects()}
            return cls(world.partition, objects, world.rlmm.list_remote_log_segments(world.partition))

    def copy(self, store: ObjectStore | None = None) -> SpoiltBucket:
        store = store or ObjectStore.from_url("memory:///")
        for key, data in self.objects.items():
            store.put(key, data)
        return SpoiltBucket(self, store, {s.segment_id.id: s for s in self.segments})


@dataclass
class SpoiltBucket:
    """A bucket of its own, to be damaged; segments by their number."""

    sound: SoundBucket
    store: ObjectStore
    known: dict[UUID, RemoteLogSegmentMetadata]
    deleted: frozenset[UUID] = frozenset()
    log_facts: LogFacts | None = None

    def key(self, number: int, kind: ObjectKind) -> str:
        return str(ObjectKey.of(self.sound.segments[number], kind))

    def keys(self, number: int) -> list[str]:
        prefix = self.key(number, ObjectKind.LOG).removesuffix("log")
        return sorted(info.key for info in self.store.list() if info.key.startswith(prefix))

    def segment_id(self, number: int) -> UUID:
        return self.sound.segments[number].segment_id.id

    # --- damage -----------------------------------------------------------------------------------------------------

    def delete(self, number: int, *kinds: ObjectKind) -> None:
        self.store.delete([self.key(number, kind) for kind in kinds or ObjectKind])

    def put(self, number: int, kind: ObjectKind, data: bytes) -> None:
        self.store.put(self.key(number, kind), data)

    def flip(self, number: int, kind: ObjectKind, at: int = -1) -> None:
        data = bytearray(self.store.get(self.key(number, kind)))
        data[at] ^= 0x40
        self.put(number, kind, bytes(data))

    def cut(self, number: int, kind: ObjectKind) -> None:
        data = bytes(self.store.get(self.key(number, kind)))
        self.put(number, kind, data[: len(data) // 2])

    def state(self, number: int, state: RemoteLogSegmentState | None) -> None:
        """What the metadata says of a segment; None: nothing."""
        segment_id = self.segment_id(number)
        found = self.known.pop(segment_id)
        if state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            self.deleted |= {segment_id}
        elif state is not None:
            self.known[segment_id] = replace(found, state=state)

    def again(self, number: int, new_id: int = 7) -> RemoteLogSegmentMetadata:
        """Copy a segment once more under another id, as a new leader does."""
        old = self.sound.segments[number]
        new = replace(old, segment_id=RemoteLogSegmentId(self.sound.partition, UUID(int=new_id)))
        before, after = str(old.segment_id.id), str(new.segment_id.id)
        assert before != after
        for key in self.keys(number):
            parsed = ObjectKey.parse(key)
            assert parsed is not None
            data = bytes(self.store.get(key))
            if parsed.kind is ObjectKind.MANIFEST:
                from stratalog.remote.storage.manifest import SegmentManifest

                manifest = replace(SegmentManifest.from_json(data, key), segment_id=new.segment_id.id)
                data = manifest.to_json()
            self.store.put(str(ObjectKey.of(new, parsed.kind)), data)
        self.known[new.segment_id.id] = new
        return new

    # --- audit and repair -------------------------------------------------------------------------------------------

    def audit(
        self, *, deep: bool = True, with_metadata: bool = True, grace_ms: int = 0, now_ms: int | None = None
    ) -> BucketAudit:
        metadata = PartitionMetadata(self.known, self.deleted)
        dirs = KnownDirs({self.sound.partition: metadata}, self.log_facts) if with_metadata else None
        return audit_bucket(self.store, AuditOptions(now_ms or later(), grace_ms, deep=deep), dirs)

    def kinds(self, number: int, result: BucketAudit) -> set[str]:
        return {one.kind.value for one in result.findings if one.segment_id == self.segment_id(number)}

    def repair(self, result: BucketAudit, store: ObjectStore | None = None) -> int:
        """Do everything that may be done to `store`; how many mends were done. What is not proved is left."""
        done = 0
        for planned in plan_repair(result.findings, later(), 0).mends:
            with suppress(NotProvedError):
                carry_out(store or self.store, planned.mend)
                done += 1
        return done

    def content(self) -> dict[str, bytes]:
        return {info.key: bytes(self.store.get(info.key)) for info in self.store.list()}


def later() -> int:
    """A moment after everything that was put so far."""
    return int(time.time() * 1000) + 5_000
