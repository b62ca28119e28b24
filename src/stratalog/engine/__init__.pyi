from .log_manager import (
    LoadReport as LoadReport,
)
from .log_manager import (
    LogManager as LogManager,
)
from .log_manager import (
    TopicSpec as TopicSpec,
)
from .moves import (
    MovingReplica as MovingReplica,
)
from .partition import (
    NO_EPOCH as NO_EPOCH,
)
from .partition import (
    Partition as Partition,
)
from .partition import (
    RemoteFetchData as RemoteFetchData,
)
from .replica_changes import (
    ReplicaChanges as ReplicaChanges,
)
