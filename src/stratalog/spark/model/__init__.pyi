from .segment import (
    Segment as Segment,
    SegmentRange as SegmentRange,
    broker_segment as broker_segment,
    has_compact_policy as has_compact_policy,
    remote_segment as remote_segment,
    within as within,
)
from .split_plan import Piece as Piece, SplitPlan as SplitPlan
