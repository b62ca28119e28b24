from .decision import (
    DeletedSegment as DeletedSegment,
    DeletionReason as DeletionReason,
    RetentionLimits as RetentionLimits,
    RetentionPlan as RetentionPlan,
    RetentionSegment as RetentionSegment,
    is_tiered as is_tiered,
    plan_retention as plan_retention,
)
