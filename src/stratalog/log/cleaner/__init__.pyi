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
    check_batch as check_batch,
)
from .chunk_kernel import (
    context_at as context_at,
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
