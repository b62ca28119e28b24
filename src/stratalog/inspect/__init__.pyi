from . import (
    restore_marker as restore_marker,
)
from .bucket import (
    BucketPartitions as BucketPartitions,
)
from .bucket import (
    PartitionObjects as PartitionObjects,
)
from .bucket import (
    PartitionReader as PartitionReader,
)
from .bucket import (
    find_partitions as find_partitions,
)
from .bucket import (
    read_manifest as read_manifest,
)
from .bucket import (
    topic_ids as topic_ids,
)
from .bucket_catalog import (
    list_remote_segments as list_remote_segments,
)
from .bucket_catalog import (
    without_covered as without_covered,
)
from .byte_sources import ByteSources as ByteSources
from .data_dirs import (
    METADATA_TOPIC as METADATA_TOPIC,
)
from .data_dirs import (
    DataDirSet as DataDirSet,
)
from .facts import (
    REMAKEABLE as REMAKEABLE,
)
from .facts import (
    LogFacts as LogFacts,
)
from .facts import (
    Manifest as Manifest,
)
from .facts import (
    ManifestFault as ManifestFault,
)
from .facts import (
    PartitionMetadata as PartitionMetadata,
)
from .facts import (
    SegmentObjects as SegmentObjects,
)
from .facts import (
    group_objects as group_objects,
)
from .facts import (
    parse_key as parse_key,
)
from .index_entries import offset_entries as offset_entries
from .index_entries import time_entries as time_entries
from .local import LocalSegment as LocalSegment
from .local import LogOnDisk as LogOnDisk
from .local import read_local_log as read_local_log
from .manifest_cache import (
    ManifestCache as ManifestCache,
)
from .place import Place as Place
from .place import PlaceChangedError as PlaceChangedError
from .place import PlaceMissingError as PlaceMissingError
from .place import PlaceTier as PlaceTier
from .restore_marker import (
    check_finished as check_finished,
)
from .segment_end import proves_timestamp as proves_timestamp
from .segment_end import read_segment_end as read_segment_end
from .topic_choice import (
    choose_topic_ids as choose_topic_ids,
)
from .topic_choice import (
    of_topic_ids as of_topic_ids,
)
