from .fetcher import (
    ReplicaFetcher as ReplicaFetcher,
)
from .isr import (
    AlterOutcome as AlterOutcome,
)
from .isr import (
    FollowerProgress as FollowerProgress,
)
from .isr import (
    IsrChange as IsrChange,
)
from .isr import (
    IsrState as IsrState,
)
from .isr import (
    Reign as Reign,
)
from .led_replicas import (
    IsrCounts as IsrCounts,
)
from .led_replicas import (
    LedReplicas as LedReplicas,
)
from .led_replicas import (
    ReadableReplica as ReadableReplica,
)
from .led_replicas import (
    ReplicationServices as ReplicationServices,
)
from .local_replicas import (
    LocalReplicas as LocalReplicas,
)
from .replica_role import (
    ReplicaRole as ReplicaRole,
)
from .replica_role import (
    Role as Role,
)
from .throttle import (
    LeaderAndFollowerThrottle as LeaderAndFollowerThrottle,
)
from .throttle import (
    ReplicationThrottle as ReplicationThrottle,
)
from .truncation import (
    cut_at_divergence as cut_at_divergence,
)
from .truncation import (
    move_into_range as move_into_range,
)
