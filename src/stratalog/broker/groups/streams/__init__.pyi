from .configured_topology import (
    StatusDetail as StatusDetail,
)
from .configured_topology import (
    StreamsStatus as StreamsStatus,
)
from .coordinator import (
    StreamsCoordinator as StreamsCoordinator,
)
from .endpoints import (
    EndpointPartitions as EndpointPartitions,
)
from .group import (
    StreamsGroup as StreamsGroup,
)
from .heartbeat import (
    StreamsHeartbeat as StreamsHeartbeat,
)
from .heartbeat import (
    StreamsOutcome as StreamsOutcome,
)
from .heartbeat import (
    StreamsReply as StreamsReply,
)
from .heartbeat import (
    check_streams_heartbeat as check_streams_heartbeat,
)
from .records import (
    decode_streams_change as decode_streams_change,
)
from .target_tasks import (
    ASSIGNOR as ASSIGNOR,
)
from .values import (
    CopartitionGroup as CopartitionGroup,
)
from .values import (
    InternalTopic as InternalTopic,
)
from .values import (
    StreamsGroupChange as StreamsGroupChange,
)
from .values import (
    StreamsGroupState as StreamsGroupState,
)
from .values import (
    StreamsMember as StreamsMember,
)
from .values import (
    StreamsTopology as StreamsTopology,
)
from .values import (
    Subtopology as Subtopology,
)
from .values import (
    Tasks as Tasks,
)
from .values import (
    UserEndpoint as UserEndpoint,
)
