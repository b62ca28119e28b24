from .flusher import (
    FlushTimes as FlushTimes,
)
from .leader_epochs import (
    LeaderEpochCache as LeaderEpochCache,
)
from .opening import (
    open_log as open_log,
)
from .partition_log import (
    PartitionLog as PartitionLog,
)
from .resumption import (
    NO_CLAIM as NO_CLAIM,
)
from .resumption import (
    Claim as Claim,
)
from .resumption import (
    claim_at as claim_at,
)
from .resumption import (
    next_sound as next_sound,
)
from .resumption import (
    search as search,
)
from .scan import (
    PartitionDirectory as PartitionDirectory,
)
from .scan import (
    SegmentFiles as SegmentFiles,
)
from .scan import (
    list_partitions as list_partitions,
)
from .scan import (
    list_segments as list_segments,
)
from .scan import (
    list_segments_once as list_segments_once,
)
from .scan import (
    scan_headers as scan_headers,
)
from .scan import (
    undisturbed as undisturbed,
)
from .trimmer import (
    RemoteHistory as RemoteHistory,
)
