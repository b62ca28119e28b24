from . import context as context
from .chunk import Chunk as Chunk, Readable as Readable, address_of as address_of
from .chunk_kernel import check_batch as check_batch, context_at as context_at
from .cleanable import CleanableLog as CleanableLog
from .cleaner import Cleaner as Cleaner
from .context import DONE as DONE, MALFORMED as MALFORMED, OUT_FULL as OUT_FULL
from .filter_plain import FilterRules as FilterRules, empty_batch as empty_batch
from .grouping import SegmentSizes as SegmentSizes, group_by_size as group_by_size
from .log_view import last_records as last_records
from .md5_kernel import SCRATCH_SIZE as SCRATCH_SIZE, md5 as md5
from .rewriting import RewritingFacts as RewritingFacts, SegmentRewriter as SegmentRewriter
from .selection import Candidate as Candidate, filthiest as filthiest
from .states import IDLE as IDLE, CleaningState as CleaningState, Event as Event, Phase as Phase
from .superseded import SupersededOffsets as SupersededOffsets
from .throttle import Throttle as Throttle
from .transactions import CleanedTransactions as CleanedTransactions, MetData as MetData
from .values import (
    CleanerSettings as CleanerSettings,
    CleanerStats as CleanerStats,
    CleaningAborted as CleaningAborted,
    CleanResult as CleanResult,
    LastRecord as LastRecord,
)
