from .directory_claim import DirectoryClaim as DirectoryClaim
from .fetcher import ReplicaFetcher as ReplicaFetcher
from .isr import (
    AlterOutcome as AlterOutcome,
    FollowerProgress as FollowerProgress,
    IsrChange as IsrChange,
    IsrState as IsrState,
    Reign as Reign,
)
from .led_replicas import (
    IsrCounts as IsrCounts,
    LedReplicas as LedReplicas,
    ReadableReplica as ReadableReplica,
    ReplicationServices as ReplicationServices,
)
from .local_replicas import LocalReplicas as LocalReplicas
from .replica_role import ReplicaRole as ReplicaRole, Role as Role
from .throttle import LeaderAndFollowerThrottle as LeaderAndFollowerThrottle, ReplicationThrottle as ReplicationThrottle
from .truncation import cut_at_divergence as cut_at_divergence, move_into_range as move_into_range
