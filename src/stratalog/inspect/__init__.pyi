from . import restore_marker as restore_marker
from .bucket import (
    BucketPartitions as BucketPartitions,
    PartitionObjects as PartitionObjects,
    PartitionReader as PartitionReader,
    find_partitions as find_partitions,
    read_manifest as read_manifest,
    topic_ids as topic_ids,
)
from .bucket_catalog import list_remote_segments as list_remote_segments, without_covered as without_covered
from .byte_sources import ByteSources as ByteSources
from .data_dirs import METADATA_TOPIC as METADATA_TOPIC, DataDirSet as DataDirSet
from .facts import (
    REMAKEABLE as REMAKEABLE,
    LogFacts as LogFacts,
    Manifest as Manifest,
    ManifestFault as ManifestFault,
    PartitionMetadata as PartitionMetadata,
    SegmentObjects as SegmentObjects,
    group_objects as group_objects,
    parse_key as parse_key,
)
from .index_entries import offset_entries as offset_entries, time_entries as time_entries
from .local import LocalSegment as LocalSegment, LogOnDisk as LogOnDisk, read_local_log as read_local_log
from .manifest_cache import ManifestCache as ManifestCache
from .place import (
    Place as Place,
    PlaceChangedError as PlaceChangedError,
    PlaceMissingError as PlaceMissingError,
    PlaceTier as PlaceTier,
)
from .replicas import (
    CheckpointReader as CheckpointReader,
    Checkpoints as Checkpoints,
    LeaderEnd as LeaderEnd,
    Replica as Replica,
    ReplicaChoice as ReplicaChoice,
    check_same_topic as check_same_topic,
    choose_replicas as choose_replicas,
    one_replica as one_replica,
)
from .restore_marker import check_finished as check_finished
from .segment_end import proves_timestamp as proves_timestamp, read_segment_end as read_segment_end
from .topic_choice import choose_topic_ids as choose_topic_ids, of_topic_ids as of_topic_ids
