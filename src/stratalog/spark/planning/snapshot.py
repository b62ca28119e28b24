"""The contents of data directories and bucket at one moment: partitions, their segments by offset, and where they end.

A snapshot is taken once, during planning, and fixes the end of every partition. Records appended later belong to the
next query. Local directories are listed before the bucket, so a segment that moves there in between is seen at least
once.

If the query names brokers, they are asked first and decide which partitions exist and where each begins and ends.
Directories and bucket serve what they have of these offsets, and the brokers serve the rest.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from stratalog.errors import CorruptCheckpointError, UsageError
from stratalog.inspect import (
    ByteSources,
    CheckpointReader,
    LeaderEnd,
    ManifestCache,
    Place,
    PlaceTier,
    choose_topic_ids,
    list_remote_segments,
    of_topic_ids,
)
from stratalog.log import list_partitions
from stratalog.log.format import (
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    OffsetCheckpoint,
    PartitionMetadataFile,
    parse_partition_dir,
)
from stratalog.remote.storage import SegmentManifest, parse_topic_directory
from stratalog.spark.model import Segment, SegmentRange, broker_segment, remote_segment, within
from stratalog.spark.options import OnDataLoss, ReadOptions, TopicPartition, on_data_loss
from stratalog.spark.planning.broker_view import BrokerPartition, BrokerView
from stratalog.spark.planning.local_replicas import LocalRanges, ReplicaDirectory, local_ranges
from stratalog.spark.planning.local_segments import SegmentListing
from stratalog.spark.planning.snapshot_memory import SnapshotMemory
from stratalog.spark.planning.tiers import merge_tiers
from stratalog.util import FileSystem

logger = logging.getLogger("stratalog.spark")

#: Manifests that queries of this process have read. The next query of the same bucket does not read them again.
_READ_BEFORE = ManifestCache(128 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One partition: ascending, disjoint ranges of its segments, within [log_start, end).

    `copies` maps the log of a local segment to the remote object with the same bytes. `topic_id` distinguishes topics
    of one name; None if unknown.
    """

    topic: str
    partition: int
    ranges: tuple[SegmentRange, ...]
    log_start: int
    end: int
    copies: Mapping[Place, Place] = field(default_factory=dict)
    topic_id: UUID | None = None

    @property
    def segments(self) -> list[Segment]:
        """Those that are files or objects."""
        return list(
            {
                id(each.segment): each.segment for each in self.ranges if each.segment.tier is not PlaceTier.BROKER
            }.values()
        )

    def between(self, start: int, end: int) -> list[SegmentRange]:
        """Return the ranges cut to [start, end)."""
        return within(self.ranges, start, end)


class SnapshotReader:
    """Reads all paths and the bucket of a query. Call `discover` first, and use it once.

    A caller that takes snapshots repeatedly passes `memory`. One that counts losses itself passes `lost`.
    """

    def __init__(
        self,
        options: ReadOptions,
        byte_sources: ByteSources,
        memory: SnapshotMemory | None = None,
        lost: OnDataLoss | None = None,
    ) -> None:
        self._options = options
        self._byte_sources = byte_sources
        self._fs: FileSystem = byte_sources.fs
        self._memory = memory or SnapshotMemory(manifests=_READ_BEFORE)
        self._lost = lost or on_data_loss(options.fail_on_data_loss)
        self._checkpoints = CheckpointReader(self._fs)
        self._local: dict[TopicPartition, list[ReplicaDirectory]] = {}
        self._manifests: list[SegmentManifest] = []
        self._broker = (
            None
            if options.broker is None
            else BrokerView(byte_sources.cluster, options.subscription, read_committed=options.read_committed)
        )
        self._reported: dict[TopicPartition, BrokerPartition] = {}

    def discover(self, wanted: Callable[[str, int], bool], *, must_exist: bool = True) -> frozenset[TopicPartition]:
        """Return all subscribed partitions, and read those for which `wanted(topic, partition)`.

        Raises UsageError for a wrong path, and for a named topic or partition that does not exist (unless `must_exist`
        is false).
        """
        subscription = self._options.subscription
        existing: frozenset[TopicPartition] | None = None
        if self._broker is not None:
            existing = self._broker.discover()
            if must_exist:
                self._broker.check_present(existing)
            self._reported = self._broker.look(wanted)

        def is_wanted(key: TopicPartition) -> bool:
            return subscription.wants(*key) and wanted(*key) and (existing is None or key in existing)

        present = self._partition_directories()
        for key, directories in present.items():
            if is_wanted(key):
                self._local[key] = [self._read_local(*key, each) for each in directories]
        manifests, not_read = self._read_manifests(is_wanted)
        self._manifests = [each for each in manifests if is_wanted(_key(each))]
        if existing is not None:
            return existing
        names = present.keys() | not_read | {_key(each) for each in manifests}
        if must_exist:
            self._check_present(names)
        return frozenset(key for key in names if subscription.wants(*key))

    def partitions(self) -> list[PartitionSnapshot]:
        """Return the wanted partitions, by topic and number."""
        if self._broker is not None:
            return self._broker_partitions()
        noted: dict[str, dict[UUID, str]] = {}
        for key, replicas in self._local.items():
            for each in replicas:
                if each.topic_id is not None:
                    noted.setdefault(key[0], {})[each.topic_id] = str(each.directory)
        chosen = choose_topic_ids(self._manifests, noted, self._options.topic_ids)
        remote = of_topic_ids(self._manifests, chosen)
        local = {key: found for key in self._local if (found := self._replicas(key, chosen.get(key[0])))}
        return [
            _merge(key, local_ranges(local.get(key, [])), remote.get(key, []))
            for key in sorted(local.keys() | remote.keys())
        ]

    def _broker_partitions(self) -> list[PartitionSnapshot]:
        """Return the partitions that the brokers report, with the segments of the same topic in files and bucket."""
        noted = {
            key[0]: {each.topic_id: "the cluster"} for key, each in self._reported.items() if each.topic_id is not None
        }
        chosen = choose_topic_ids([] if noted else self._manifests, noted, self._options.topic_ids)
        remote = of_topic_ids(self._manifests, chosen)
        found = []
        for key, reported in sorted(self._reported.items()):
            local = local_ranges(self._replicas(key, reported.topic_id), LeaderEnd(reported.leader_epoch, reported.end))
            found.append(_merge(key, local, remote.get(key, []), reported))
        return found

    def _replicas(self, key: TopicPartition, topic_id: UUID | None) -> list[ReplicaDirectory]:
        """Return the directories of a partition, without those known to belong to another topic."""
        return [each for each in self._local.get(key, []) if self._is_of(each, topic_id)]

    @staticmethod
    def _is_of(local: ReplicaDirectory, topic_id: UUID | None) -> bool:
        if None in (local.topic_id, topic_id) or local.topic_id == topic_id:
            return True
        logger.warning("%s is of another topic of this name; it is not read", local.directory)
        return False

    # --- local ------------------------------------------------------------------------------------------------------

    def _partition_directories(self) -> dict[TopicPartition, list[Path]]:
        """Return every partition's directories under the paths: several where brokers have replicas of it."""
        found: dict[TopicPartition, list[Path]] = {}
        for name in self._options.paths:
            for key, directory in self._under(_local_path(name)):
                directories = found.setdefault(key, [])
                if directory not in directories:
                    directories.append(directory)
        return found

    def _under(self, root: Path) -> list[tuple[TopicPartition, Path]]:
        if not self._fs.is_dir(root):
            what = "is not a directory" if self._fs.exists(root) else "does not exist"
            raise UsageError(f"option path: {root} {what}")
        try:
            own = parse_partition_dir(root.resolve().name)
            if own is not None and any(name.endswith(".log") for name in self._fs.list_dir(root)):
                return [(own, root)]
            return [((each.topic, each.partition), each.path) for each in list_partitions(root, self._fs)]
        except OSError as error:
            raise UsageError(f"option path: {root} cannot be read: {error.strerror or error}") from error

    def _read_local(self, topic: str, partition: int, directory: Path) -> ReplicaDirectory:
        checkpoints = self._checkpoints.of(directory, topic, partition)  # before the log, which may grow in between
        try:
            topic_id = PartitionMetadataFile(directory / PARTITION_METADATA, self._fs).read()
            starts = OffsetCheckpoint(directory.parent / LOG_START_OFFSETS, self._fs).read()
        except CorruptCheckpointError as error:
            self._lost(str(error))
            topic_id, starts = None, {}
        sealed = self._memory.sealed(directory, topic_id)
        before = set(sealed)
        segments = SegmentListing(directory, self._lost, self._fs, sealed).list()
        if before - sealed.keys():  # segments deleted here may have reached the bucket since it was last listed
            self._memory.forget_remote()
        return ReplicaDirectory(directory, topic_id, segments, starts.get((topic, partition), 0), checkpoints)

    # --- remote -----------------------------------------------------------------------------------------------------

    def _read_manifests(
        self, is_wanted: Callable[[TopicPartition], bool]
    ) -> tuple[list[SegmentManifest], set[TopicPartition]]:
        """Return the manifests of wanted partitions, and the partitions that their names excluded."""
        if self._options.remote_url is None:
            return [], set()
        not_read: set[TopicPartition] = set()
        return self._memory.remote(lambda: self._list_remote(is_wanted, not_read)), not_read

    def _list_remote(
        self, is_wanted: Callable[[TopicPartition], bool], not_read: set[TopicPartition]
    ) -> list[SegmentManifest]:
        store = self._byte_sources.store
        directories = Counter(parse_topic_directory(name) for name in store.list_level("").directories)
        subscribed = {
            topic: count
            for topic, count in directories.items()
            if topic and self._options.subscription.wants_topic(topic)
        }
        if not subscribed:
            return []

        def reads(topic: str, partition: int) -> bool:
            # Several topics may have the same name. All their partitions are needed to select one.
            if subscribed[topic] > 1 or is_wanted((topic, partition)):
                return True
            not_read.add((topic, partition))
            return False

        return list_remote_segments(store, subscribed, covered=True, cache=self._memory.manifests, wanted=reads)

    def _check_present(self, present: Collection[TopicPartition]) -> None:
        subscription = self._options.subscription
        where = " or ".join(filter(None, [*self._options.paths, self._options.remote_url]))
        missing = sorted(subscription.named_topics - {topic for topic, _ in present})
        if missing:
            raise UsageError(f"there is no topic {', '.join(missing)} in {where}")
        absent = sorted((subscription.partitions or frozenset()) - set(present))
        if absent:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in absent)
            raise UsageError(f"there is no partition {names} in {where}")


def _merge(
    key: TopicPartition,
    local: LocalRanges,
    manifests: Sequence[SegmentManifest],
    reported: BrokerPartition | None = None,
) -> PartitionSnapshot:
    remote_segments = [remote_segment(each) for each in manifests]
    if reported is None:
        ranges = merge_tiers(remote_segments, local.ranges)
        log_start = max(local.log_start, ranges[0].start if ranges else 0)
        end = max(ranges[-1].end if ranges else 0, log_start)
    else:
        log_start, end = reported.log_start, reported.end
        ranges = merge_tiers([*remote_segments, broker_segment(*key, log_start, end)], local.ranges)
    by_range = {(each.base_offset, each.end_offset, each.size): each.log for each in remote_segments}
    copies = {
        each.log: by_range[each.base_offset, each.end_offset, each.size]
        for each in (part.segment for part in local.ranges)
        if (each.base_offset, each.end_offset, each.size) in by_range
    }
    topic_id = local.topic_id if reported is None else reported.topic_id
    if topic_id is None and manifests:
        topic_id = manifests[0].topic_id
    snapshot = PartitionSnapshot(*key, tuple(ranges), log_start, end, copies, topic_id)
    return replace(snapshot, ranges=tuple(snapshot.between(log_start, end)))


def _key(manifest: SegmentManifest) -> TopicPartition:
    return manifest.topic, manifest.partition


def _local_path(name: str) -> Path:
    """Return a path or a file:// URL. Raises UsageError for another scheme."""
    if "://" in name or name.startswith("file:"):
        url = urlsplit(name)
        if url.scheme != "file" or url.netloc not in ("", "localhost"):
            raise UsageError(f"option path={name}: expected a local directory; object stores go to option remote")
        return Path(unquote(url.path))
    return Path(name)
