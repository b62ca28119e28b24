from .bucket import (
    AuditOptions as AuditOptions,
    BucketAudit as BucketAudit,
    audit_bucket as audit_bucket,
    plain_view as plain_view,
)
from .findings import (
    AuditKind as AuditKind,
    ObjectFinding as ObjectFinding,
    PlannedMend as PlannedMend,
    RemakeIndexes as RemakeIndexes,
    RepairPlan as RepairPlan,
    plan_repair as plan_repair,
)
from .reading import read_segment as read_segment
from .rebuild_objects import remake as remake
from .repair import carry_out as carry_out, store_time_ms as store_time_ms
from .result import AuditResult as AuditResult
from .run import audit as audit
from .segment import MetadataState as MetadataState, misfits as misfits, state_of as state_of
from .uploads import audit_uploads as audit_uploads
