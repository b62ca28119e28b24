from . import (
    context as context,
)
from .chunk import (
    Chunk as Chunk,
)
from .chunk import (
    Readable as Readable,
)
from .chunk import (
    address_of as address_of,
)
from .chunk_kernel import (
    HEADER_SIZE as HEADER_SIZE,
)
from .chunk_kernel import (
    check_batch as check_batch,
)
from .cleanable import (
    CleanableLog as CleanableLog,
)
from .cleaner import (
    Cleaner as Cleaner,
)
from .context import (
    DONE as DONE,
)
from .context import (
    MALFORMED as MALFORMED,
)
from .context import (
    OUT_FULL as OUT_FULL,
)
from .context import (
    X_CHUNK as X_CHUNK,
)
from .context import (
    X_COUNT as X_COUNT,
)
from .context import (
    X_HAS_TOMBSTONES as X_HAS_TOMBSTONES,
)
from .context import (
    X_INVALID as X_INVALID,
)
from .context import (
    X_MAP as X_MAP,
)
from .context import (
    X_MESSAGES_READ as X_MESSAGES_READ,
)
from .context import (
    X_OUT as X_OUT,
)
from .context import (
    X_OUT_CAPACITY as X_OUT_CAPACITY,
)
from .context import (
    X_OUT_SIZE as X_OUT_SIZE,
)
from .context import (
    X_POSITION as X_POSITION,
)
from .context import (
    X_RETAINED as X_RETAINED,
)
from .context import (
    X_STATUS as X_STATUS,
)
from .filter_plain import (
    FilterRules as FilterRules,
)
from .filter_plain import (
    empty_batch as empty_batch,
)
from .grouping import (
    SegmentSizes as SegmentSizes,
)
from .grouping import (
    group_by_size as group_by_size,
)
from .log_view import (
    last_records as last_records,
)
from .md5_kernel import (
    SCRATCH_SIZE as SCRATCH_SIZE,
)
from .md5_kernel import (
    md5 as md5,
)
from .rewriting import (
    RewritingFacts as RewritingFacts,
)
from .rewriting import (
    SegmentRewriter as SegmentRewriter,
)
from .selection import (
    Candidate as Candidate,
)
from .selection import (
    filthiest as filthiest,
)
from .states import (
    IDLE as IDLE,
)
from .states import (
    CleaningState as CleaningState,
)
from .states import (
    Event as Event,
)
from .states import (
    Phase as Phase,
)
from .superseded import (
    SupersededOffsets as SupersededOffsets,
)
from .throttle import (
    Throttle as Throttle,
)
from .transactions import (
    CleanedTransactions as CleanedTransactions,
)
from .transactions import (
    MetData as MetData,
)
from .values import (
    CleanerSettings as CleanerSettings,
)
from .values import (
    CleanerStats as CleanerStats,
)
from .values import (
    CleaningAborted as CleaningAborted,
)
from .values import (
    CleanResult as CleanResult,
)
from .values import (
    LastRecord as LastRecord,
)
