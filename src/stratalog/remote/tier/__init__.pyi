from .counters import RemoteTopicCounts as RemoteTopicCounts
from .health import RemoteHealth as RemoteHealth
from .log_view import LogView as LogView
from .manager import RemoteLogManager as RemoteLogManager
from .quota import ThrottleCounts as ThrottleCounts
from .retention import (
    ExpirationReason as ExpirationReason,
    RetentionFacts as RetentionFacts,
    plan_expiration as plan_expiration,
    readable_sizes as readable_sizes,
)
from .services import PartitionCount as PartitionCount
from .status import (
    MEANING as MEANING,
    TaskFailure as TaskFailure,
    TierFacts as TierFacts,
    TierStatus as TierStatus,
    partition_status as partition_status,
)
from .tier_facts import PartitionGauges as PartitionGauges, RemoteSizes as RemoteSizes, RemoteTotals as RemoteTotals
