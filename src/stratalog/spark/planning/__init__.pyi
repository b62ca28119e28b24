from .broker_ranges import BrokerRanges as BrokerRanges
from .compacted import explains as explains
from .cutting import Cutter as Cutter
from .filters import Constraints as Constraints, push as push
from .index_access import IndexAccess as IndexAccess
from .indexes import OffsetEntries as OffsetEntries
from .intervals import INT64_MAX as INT64_MAX, Intervals as Intervals
from .limits import LimitResolver as LimitResolver, check_names_all as check_names_all
from .local_segments import LocalSpan as LocalSpan, SegmentListing as SegmentListing
from .planner import PartitionRead as PartitionRead, Planner as Planner
from .snapshot import PartitionSnapshot as PartitionSnapshot, SnapshotReader as SnapshotReader
from .snapshot_memory import SnapshotMemory as SnapshotMemory
from .stable import again_while_changing as again_while_changing
from .tiers import merge_tiers as merge_tiers
from .transactions import last_stable_offset as last_stable_offset, transaction_state as transaction_state
