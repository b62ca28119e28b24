from .interfaces import (
    INT32_MAX as INT32_MAX,
)
from .interfaces import (
    CustomMetadata as CustomMetadata,
)
from .interfaces import (
    IndexType as IndexType,
)
from .interfaces import (
    LogSegmentData as LogSegmentData,
)
from .interfaces import (
    RemoteLogMetadata as RemoteLogMetadata,
)
from .interfaces import (
    RemoteLogMetadataManager as RemoteLogMetadataManager,
)
from .interfaces import (
    RemoteLogSegmentId as RemoteLogSegmentId,
)
from .interfaces import (
    RemoteLogSegmentMetadata as RemoteLogSegmentMetadata,
)
from .interfaces import (
    RemoteLogSegmentMetadataUpdate as RemoteLogSegmentMetadataUpdate,
)
from .interfaces import (
    RemotePartitionDeleteMetadata as RemotePartitionDeleteMetadata,
)
from .interfaces import (
    RemoteStorageManager as RemoteStorageManager,
)
from .interfaces import (
    TopicIdPartition as TopicIdPartition,
)
from .lineage import (
    begins_in_lineage as begins_in_lineage,
)
from .lineage import (
    is_within_lineage as is_within_lineage,
)
from .lineage import (
    lineage_of as lineage_of,
)
from .lineage import (
    without_empty_epochs as without_empty_epochs,
)
from .plugin import (
    BrokerIdentity as BrokerIdentity,
)
from .plugin import (
    DescribesStoredSegments as DescribesStoredSegments,
)
from .plugin import (
    OwnsItsStore as OwnsItsStore,
)
from .plugin import (
    StoredSegment as StoredSegment,
)
from .plugin import (
    StoreOwnership as StoreOwnership,
)
from .plugin import (
    ensure_owner as ensure_owner,
)
from .plugin import (
    ensure_reachable as ensure_reachable,
)
from .plugin import (
    fetch_records as fetch_records,
)
from .plugin import (
    is_read_only as is_read_only,
)
from .plugin import (
    name_of as name_of,
)
from .plugin import (
    position_max as position_max,
)
from .plugin_loader import (
    configure_plugin as configure_plugin,
)
from .plugin_loader import (
    load_plugin as load_plugin,
)
from .plugin_metrics import (
    Monitorable as Monitorable,
)
from .plugin_metrics import (
    PluginMetrics as PluginMetrics,
)
from .plugin_metrics import (
    RegisteredMetric as RegisteredMetric,
)
from .segment_state import (
    RemoteLogSegmentState as RemoteLogSegmentState,
)
from .segment_state import (
    RemotePartitionDeleteState as RemotePartitionDeleteState,
)
from .segment_state import (
    is_valid_delete_transition as is_valid_delete_transition,
)
from .segment_state import (
    is_valid_transition as is_valid_transition,
)
