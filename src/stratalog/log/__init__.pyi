from .flusher import FlushTimes as FlushTimes
from .leader_epochs import LeaderEpochCache as LeaderEpochCache
from .opening import open_log as open_log
from .partition_log import PartitionLog as PartitionLog
from .resumption import (
    NO_CLAIM as NO_CLAIM,
    Claim as Claim,
    claim_at as claim_at,
    next_sound as next_sound,
    search as search,
)
from .scan import (
    PartitionDirectory as PartitionDirectory,
    SegmentFiles as SegmentFiles,
    list_partitions as list_partitions,
    list_segments as list_segments,
    list_segments_once as list_segments_once,
    scan_headers as scan_headers,
    undisturbed as undisturbed,
)
from .trimmer import RemoteHistory as RemoteHistory
