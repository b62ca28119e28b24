from .counters import (
    RemoteTopicCounts as RemoteTopicCounts,
)
from .health import (
    RemoteHealth as RemoteHealth,
)
from .log_view import (
    LogView as LogView,
)
from .manager import (
    RemoteLogManager as RemoteLogManager,
)
from .quota import (
    ThrottleCounts as ThrottleCounts,
)
from .retention import (
    ExpirationReason as ExpirationReason,
)
from .retention import (
    RetentionFacts as RetentionFacts,
)
from .retention import (
    plan_expiration as plan_expiration,
)
from .retention import (
    readable_sizes as readable_sizes,
)
from .services import (
    PartitionCount as PartitionCount,
)
from .status import (
    MEANING as MEANING,
)
from .status import (
    TaskFailure as TaskFailure,
)
from .status import (
    TierFacts as TierFacts,
)
from .status import (
    TierStatus as TierStatus,
)
from .status import (
    partition_status as partition_status,
)
from .tier_facts import (
    PartitionGauges as PartitionGauges,
)
from .tier_facts import (
    RemoteSizes as RemoteSizes,
)
from .tier_facts import (
    RemoteTotals as RemoteTotals,
)
