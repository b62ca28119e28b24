"""Change the partitions of a bucket: through the bucket alone, or with the brokers that serve them.

    InBucket                                       InCluster
    one publication: new ones in, old ones out     a publication of the new ones, then their events in one batch:
                                                   brokers read the new ones from now on
                       ------------ the grace: readers of the old ones end ------------
    objects deleted                                DELETE_SEGMENT_STARTED, objects deleted, DELETE_SEGMENT_FINISHED

Every step may be repeated. After a crash at any step, each offset is served by old or new segments. The next run
removes segments that are covered by others or replaced, and unpublished ones of earlier jobs, and finishes deletions.
New segments that were published but not announced are replaced by their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol
from uuid import UUID

from stratalog.jobs.compaction.bucket import BucketPlan
from stratalog.jobs.compaction.bucket_job import BucketJob
from stratalog.jobs.compaction.metadata_topic import TieredCluster
from stratalog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from stratalog.remote.ownership import check_no_owner, check_owner
from stratalog.remote.storage import ObjectStore, ObjectStoreRemoteStorageManager, SegmentManifest
from stratalog.remote.transactions import publish, remove_objects, replaced_segments
from stratalog.util import Clock

_WHAT: Final = "a compaction"
_INSTEAD: Final = (
    "name its brokers (--kafka bootstrap.servers=HOST:PORT, kafka.bootstrap.servers), which learn of it then"
)

#: Seconds between the last lookup of a segment that is being deleted and the deletion of its objects.
_SETTLE_SECONDS_MAX: Final = 5.0


class Destination(Protocol):
    """The place where compacted partitions become visible."""

    def ensure_allowed(self, manifests: Sequence[SegmentManifest] = ()) -> None:
        """Raise NotOwnerError if the bucket must not be changed in this way. `manifests` are those to change."""

    def begin(self, manifests: Sequence[SegmentManifest]) -> None:
        """Remove leftovers of earlier jobs, and record this one. `manifests` are all visible ones of its topics."""

    def readable(self, manifests: Sequence[SegmentManifest]) -> list[SegmentManifest]:
        """Return the segments of one partition that readers use."""

    def replace(self, plan: BucketPlan, new: Sequence[SegmentManifest]) -> None:
        """Make new segments of a partition visible, and record which others are obsolete."""

    def clean_up(self, grace_seconds: float) -> None:
        """Delete obsolete segments after a while, and all objects that tasks left."""


class InBucket:
    def __init__(self, store: ObjectStore, job: BucketJob, clock: Clock) -> None:
        self._store = store
        self._job = job
        self._clock = clock

    def ensure_allowed(self, manifests: Sequence[SegmentManifest] = ()) -> None:
        check_no_owner(self._store, _WHAT, manifests, instead=_INSTEAD)

    def begin(self, manifests: Sequence[SegmentManifest]) -> None:
        self.ensure_allowed(manifests)
        self._job.find_earlier()
        self._job.begin()

    def readable(self, manifests: Sequence[SegmentManifest]) -> list[SegmentManifest]:
        return list(manifests)

    def replace(self, plan: BucketPlan, new: Sequence[SegmentManifest]) -> None:
        replaced = plan.replaced_by(new)
        if new or replaced:
            self.ensure_allowed(plan.manifests)
            publish(self._store, _name(plan.partition), new, replaces=replaced, clock=self._clock)

    def clean_up(self, grace_seconds: float) -> None:
        replaced = _replaced(self._store, self._job)
        if replaced:
            self._clock.sleep(grace_seconds)
            self.ensure_allowed()
            _delete_objects(self._store, replaced)
        self._job.end()


class InCluster:
    def __init__(self, store: ObjectStore, job: BucketJob, cluster: TieredCluster, clock: Clock) -> None:
        self._store = store
        self._job = job
        self._cluster = cluster
        self._clock = clock
        self._replaced: list[RemoteLogSegmentMetadata] = []

    def ensure_allowed(self, manifests: Sequence[SegmentManifest] = ()) -> None:  # noqa: ARG002
        check_owner(self._store, _WHAT, self._cluster.cluster_id, "the brokers that were named belong")

    def begin(self, manifests: Sequence[SegmentManifest]) -> None:
        self.ensure_allowed()
        self._job.find_earlier()
        made = [each for each in manifests if self._job.is_of_earlier(each)]
        for partition in dict.fromkeys(each.topic_id_partition for each in made):
            known = self._cluster.segments(partition)
            unannounced = [
                each for each in made if each.topic_id_partition == partition and each.segment_id not in known
            ]
            if unannounced:
                publish(self._store, _name(partition), [], replaces=unannounced, clock=self._clock)
        self._job.begin()

    def readable(self, manifests: Sequence[SegmentManifest]) -> list[SegmentManifest]:
        if not manifests:
            return []
        known = self._cluster.segments(manifests[0].topic_id_partition)
        deleting = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        self._replaced += [metadata for metadata in known.values() if metadata.state is deleting]
        return self._cluster.of_the_log(
            [each for each in manifests if each.segment_id in known and known[each.segment_id].is_readable]
        )

    def replace(self, plan: BucketPlan, new: Sequence[SegmentManifest]) -> None:
        known = self._cluster.segments(plan.partition)
        gone = {
            each.segment_id
            for each in plan.manifests
            if each.segment_id not in known or not known[each.segment_id].is_readable
        }
        good = [each for each in new if not _is_made_of(each, plan, gone)]
        remove_objects(self._store, [each for each in new if each not in good])
        if good:
            self.ensure_allowed()
            publish(self._store, _name(plan.partition), good, clock=self._clock)
            self._cluster.announce(plan.partition, good)
        self._replaced += [known[each.segment_id] for each in plan.replaced_by(good) if each.segment_id not in gone]

    def clean_up(self, grace_seconds: float) -> None:
        unannounced = _replaced(self._store, self._job)
        if self._replaced or unannounced:
            self._clock.sleep(grace_seconds)
            self.ensure_allowed()
            self._cluster.to(RemoteLogSegmentState.DELETE_SEGMENT_STARTED, self._replaced)
            self._clock.sleep(min(grace_seconds, _SETTLE_SECONDS_MAX))
            _delete_objects(self._store, [*self._replaced, *unannounced])
            self._cluster.to(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, self._replaced)
        self._job.end()


def _replaced(store: ObjectStore, job: BucketJob) -> list[RemoteLogSegmentMetadata]:
    """Return the segments that publications of this job, or of an unfinished one, replaced."""
    return [each.metadata() for each in replaced_segments(store, job.topics)]


def _delete_objects(store: ObjectStore, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    """Delete objects of any layout. Objects that are gone are no error. Raises RemoteStorageError."""
    manager = ObjectStoreRemoteStorageManager(store)
    try:
        for segment in segments:
            manager.delete_log_segment_data(segment)
    finally:
        manager.close()


def _is_made_of(new: SegmentManifest, plan: BucketPlan, gone: set[UUID]) -> bool:
    """Return whether a source of a new segment no longer exists, because retention deleted it."""
    return any(
        each.segment_id in gone and new.base_offset <= each.base_offset and each.end_offset <= new.end_offset
        for each in plan.manifests
    )


def _name(partition: TopicIdPartition) -> str:
    return f"compact-{partition.topic}-{partition.partition}"
