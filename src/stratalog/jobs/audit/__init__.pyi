from .bucket import (
    AuditOptions as AuditOptions,
)
from .bucket import (
    BucketAudit as BucketAudit,
)
from .bucket import (
    audit_bucket as audit_bucket,
)
from .bucket import (
    plain_view as plain_view,
)
from .findings import (
    AuditKind as AuditKind,
)
from .findings import (
    ObjectFinding as ObjectFinding,
)
from .findings import (
    PlannedMend as PlannedMend,
)
from .findings import (
    RemakeIndexes as RemakeIndexes,
)
from .findings import (
    RepairPlan as RepairPlan,
)
from .findings import (
    plan_repair as plan_repair,
)
from .reading import (
    read_segment as read_segment,
)
from .rebuild_objects import (
    remake as remake,
)
from .repair import (
    carry_out as carry_out,
)
from .repair import (
    store_time_ms as store_time_ms,
)
from .result import (
    AuditResult as AuditResult,
)
from .run import (
    audit as audit,
)
from .segment import (
    MetadataState as MetadataState,
)
from .segment import (
    misfits as misfits,
)
from .segment import (
    state_of as state_of,
)
from .uploads import (
    audit_uploads as audit_uploads,
)
