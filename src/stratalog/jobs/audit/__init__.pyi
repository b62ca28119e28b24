from .findings import (
    Finding as Finding,
)
from .findings import (
    Kind as Kind,
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
    Severity as Severity,
)
from .findings import (
    plan_repair as plan_repair,
)
from .partition import (
    audit as audit,
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
from .run import (
    AuditOptions as AuditOptions,
)
from .run import (
    AuditProgress as AuditProgress,
)
from .run import (
    AuditResult as AuditResult,
)
from .run import (
    audit_bucket as audit_bucket,
)
from .run import (
    beside_partitions as beside_partitions,
)
from .run import (
    check_content as check_content,
)
from .run import (
    plain_view as plain_view,
)
from .run import (
    segments_to_read as segments_to_read,
)
from .segment import (
    SegmentFacts as SegmentFacts,
)
from .segment import (
    State as State,
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
