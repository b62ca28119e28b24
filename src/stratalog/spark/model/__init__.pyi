from .segment import (
    Segment as Segment,
)
from .segment import (
    SegmentRange as SegmentRange,
)
from .segment import (
    broker_segment as broker_segment,
)
from .segment import (
    has_compact_policy as has_compact_policy,
)
from .segment import (
    remote_segment as remote_segment,
)
from .segment import within as within
from .split_plan import (
    Piece as Piece,
)
from .split_plan import (
    SplitPlan as SplitPlan,
)
