from .interfaces import (
    INT32_MAX as INT32_MAX,
    CustomMetadata as CustomMetadata,
    IndexType as IndexType,
    LogSegmentData as LogSegmentData,
    RemoteLogMetadata as RemoteLogMetadata,
    RemoteLogMetadataManager as RemoteLogMetadataManager,
    RemoteLogSegmentId as RemoteLogSegmentId,
    RemoteLogSegmentMetadata as RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate as RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata as RemotePartitionDeleteMetadata,
    RemoteStorageManager as RemoteStorageManager,
)
from .lineage import (
    begins_in_lineage as begins_in_lineage,
    is_within_lineage as is_within_lineage,
    lineage_of as lineage_of,
    without_empty_epochs as without_empty_epochs,
)
from .plugin import (
    BrokerIdentity as BrokerIdentity,
    DescribesStoredSegments as DescribesStoredSegments,
    OwnsItsStore as OwnsItsStore,
    StoredSegment as StoredSegment,
    StoreOwnership as StoreOwnership,
    ensure_owner as ensure_owner,
    ensure_reachable as ensure_reachable,
    fetch_records as fetch_records,
    is_read_only as is_read_only,
    name_of as name_of,
    position_max as position_max,
)
from .plugin_loader import configure_plugin as configure_plugin, load_plugin as load_plugin
from .plugin_metrics import (
    Monitorable as Monitorable,
    PluginMetrics as PluginMetrics,
    RegisteredMetric as RegisteredMetric,
)
from .segment_state import (
    RemoteLogSegmentState as RemoteLogSegmentState,
    RemotePartitionDeleteState as RemotePartitionDeleteState,
    is_valid_delete_transition as is_valid_delete_transition,
    is_valid_transition as is_valid_transition,
)
from .topic_id_partition import TopicIdPartition as TopicIdPartition
