from .decision import (
    DeletedSegment as DeletedSegment,
)
from .decision import (
    DeletionReason as DeletionReason,
)
from .decision import (
    RetentionLimits as RetentionLimits,
)
from .decision import (
    RetentionPlan as RetentionPlan,
)
from .decision import (
    RetentionSegment as RetentionSegment,
)
from .decision import (
    is_tiered as is_tiered,
)
from .decision import (
    plan_retention as plan_retention,
)
