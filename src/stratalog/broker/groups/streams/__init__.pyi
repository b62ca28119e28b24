from .configured_topology import StatusDetail as StatusDetail, StreamsStatus as StreamsStatus
from .coordinator import StreamsCoordinator as StreamsCoordinator
from .endpoints import EndpointPartitions as EndpointPartitions
from .group import StreamsGroup as StreamsGroup
from .heartbeat import (
    StreamsHeartbeat as StreamsHeartbeat,
    StreamsOutcome as StreamsOutcome,
    StreamsReply as StreamsReply,
    check_streams_heartbeat as check_streams_heartbeat,
)
from .records import decode_streams_change as decode_streams_change
from .target_tasks import ASSIGNOR as ASSIGNOR
from .values import (
    CopartitionGroup as CopartitionGroup,
    InternalTopic as InternalTopic,
    StreamsGroupChange as StreamsGroupChange,
    StreamsGroupState as StreamsGroupState,
    StreamsMember as StreamsMember,
    StreamsTopology as StreamsTopology,
    Subtopology as Subtopology,
    Tasks as Tasks,
    UserEndpoint as UserEndpoint,
)
