from .broker_ranges import (
    BrokerRanges as BrokerRanges,
)
from .compacted import (
    explains as explains,
)
from .cutting import (
    Cutter as Cutter,
)
from .filters import (
    Constraints as Constraints,
)
from .filters import (
    push as push,
)
from .index_access import (
    IndexAccess as IndexAccess,
)
from .indexes import (
    OffsetEntries as OffsetEntries,
)
from .intervals import (
    INT64_MAX as INT64_MAX,
)
from .intervals import (
    Intervals as Intervals,
)
from .limits import (
    LimitResolver as LimitResolver,
)
from .limits import (
    check_names_all as check_names_all,
)
from .local_segments import (
    LocalSpan as LocalSpan,
)
from .local_segments import (
    SegmentListing as SegmentListing,
)
from .planner import (
    PartitionRead as PartitionRead,
)
from .planner import (
    Planner as Planner,
)
from .snapshot import (
    PartitionSnapshot as PartitionSnapshot,
)
from .snapshot import (
    SnapshotReader as SnapshotReader,
)
from .snapshot_memory import (
    SnapshotMemory as SnapshotMemory,
)
from .stable import (
    again_while_changing as again_while_changing,
)
from .tiers import (
    merge_tiers as merge_tiers,
)
from .transactions import (
    last_stable_offset as last_stable_offset,
)
from .transactions import (
    transaction_state as transaction_state,
)
